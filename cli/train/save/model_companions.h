// What a model directory has beside config.json and the weights: without these files a trained
// model answers prompts in other tokens than it was trained with, and does not know where to stop.
#pragma once

#include <string>

#include "cli/train/flags/options.h"

namespace fsdp2::cli {

// Copies the files of --model that say how its texts end and how its images are seen, and those of
// the tokenizer of the run, into the directory `to`, in place of any that are there: those of
// another model. Throws Failure for a file that cannot be copied.
void copy_model_companions(const TrainOptions& options, const std::string& to);

}  // namespace fsdp2::cli
