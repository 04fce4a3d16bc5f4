// The options of a training run, from its arguments.
#pragma once

#include <string>
#include <vector>

#include "core/config/plan.h"

namespace fsdp2::cli {

using config::TrainOptions;

enum class Request { kTrain, kPrintConfig, kHelpPrinted, kVersion };

// What a configuration file says, if there is one, and what flags say, which go before it. Throws
// UsageError, also for values that contradict each other or are not supported yet.
Request parse_train_options(const std::vector<std::string>& arguments, config::Plan* out);

}  // namespace fsdp2::cli
