// Where ROLL's settings of FSDP2 stand within a role.
#pragma once

#include <string>

namespace fsdp2::config {

inline std::string roll_strategy(const std::string& key) {
  return "strategy_args.strategy_config." + key;
}

}  // namespace fsdp2::config
