// The options of a training run, from its arguments.
#pragma once

#include <string>
#include <vector>

#include "cli/sharding.h"
#include "core/config/train_options.h"

namespace fsdp2::cli {

using config::TrainOptions;

enum class Request { kTrain, kHelpPrinted, kVersion };

// Throws UsageError, also for values that contradict each other or are not supported yet.
Request parse_train_options(std::vector<std::string> arguments, TrainOptions* out);

}  // namespace fsdp2::cli
