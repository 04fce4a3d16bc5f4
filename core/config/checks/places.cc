#include "core/config/checks/places.h"

#include <cstddef>

namespace fsdp2::config {

bool is_override(const Plan& plan, const std::string& key) {
  return plan.origin_of(key).rfind("override", 0) == 0;
}

std::string message_with_places(std::string message, const Plan& plan) {
  const std::string said = message + " ";
  for (const auto& [name, origin] : plan.origins) {
    const size_t at = said.find("--" + name);
    const bool is_named = at != std::string::npos &&
                          std::string(" ,:=").find(said[at + 2 + name.size()]) != std::string::npos;
    if (!is_override(plan, name) && is_named) {
      message += " (--" + name + " is " + origin + ")";
    }
  }
  return message;
}

}  // namespace fsdp2::config
