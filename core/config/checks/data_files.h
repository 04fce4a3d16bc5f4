// The files that a run reads, and the tokenizer that reads them.
#pragma once

#include <string>
#include <vector>

#include "core/config/train_options.h"

namespace fsdp2::config {

// What --tokens, --text or --records names: one file, or with --data-weights those of a mixture.
std::vector<std::string> data_files(const TrainOptions& options);

// Throws ConfigError for what is no positive number.
double read_data_weight(const std::string& text);

// What --tokenizer stands for: a tokenizer.json, or a directory that is to have one; "": bytes.
// Throws ConfigError for `model` where --model has none.
std::string tokenizer_path(const TrainOptions& options);

}  // namespace fsdp2::config
