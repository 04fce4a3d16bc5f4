// The rule of --optimizer-states, which a run and its plan have in common.
#pragma once

#include <string>

namespace fsdp2::config {

// Throws ConfigError unless an optimizer of this name, over parameters of this dtype, can have such
// states.
void check_optimizer_states(const std::string& states, const std::string& optimizer,
                            const std::string& dtype);

}  // namespace fsdp2::config
