// What is written of one step.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/library.h"
#include "cli/train/flags/options.h"

namespace fsdp2::cli {

// seconds: of the whole step, the reading of its batch included. The line also has the memory that
// this process uses now.
nlohmann::ordered_json step_line(const TrainOptions& options, const fsdp2_step_result& result,
                                 double seconds, double tokens_per_second);

}  // namespace fsdp2::cli
