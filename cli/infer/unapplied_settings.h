// What a model's generation_config.json asks for, and fsdp2 generate does not do.
#pragma once

#include <string>

#include "core/config/plan.h"

namespace fsdp2::cli {

// One line for people; "" if there is nothing, or no such file. What has a flag (temperature,
// top_k, top_p) is left out: the flag says it. Throws Failure for a file that is not what it is to
// be.
std::string unapplied_settings(const config::TrainOptions& run);

}  // namespace fsdp2::cli
