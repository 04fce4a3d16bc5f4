// Text from the model that has been trained.
#pragma once

#include <string>

#include "cli/train/library.h"
#include "cli/train/options.h"

namespace fsdp2::cli {

struct Sample {
  std::string prompt;
  std::string text;  // what the model put behind it; numbers, unless tokens are bytes
};

// Collective; the same on all ranks.
Sample make_sample(const TrainOptions& options, const Module& module);

}  // namespace fsdp2::cli
