#include "core/config/checks/optimizer_states.h"

#include "core/config/checks/require.h"

namespace fsdp2::config {

void check_optimizer_states(const std::string& states, const std::string& optimizer,
                            const std::string& dtype) {
  if (states == "default") {
    return;
  }
  const std::string flag = "--optimizer-states " + states;
  require(optimizer == "adamw" || optimizer == "adam",
          flag + " needs --optimizer adamw or adam, found " + optimizer);
  require(dtype == "fp32", flag + " needs parameters in fp32, found --dtype " + dtype);
}

}  // namespace fsdp2::config
