#include "core/config/checks/places.h"

#include <cstddef>

namespace fsdp2::config {

namespace {

// Also beside flags that begin like it.
bool names_flag(const std::string& message, const std::string& flag) {
  for (size_t at = message.find(flag); at != std::string::npos; at = message.find(flag, at + 1)) {
    const size_t end = at + flag.size();
    if (end == message.size() || std::string(" ,:=").find(message[end]) != std::string::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool is_override(const Plan& plan, const std::string& key) {
  return plan.origin_of(key).rfind("override", 0) == 0;
}

std::string message_with_places(std::string message, const Plan& plan) {
  const std::string said = message;
  for (const auto& [name, origin] : plan.origins) {
    const bool is_told = said.find("(" + origin + ")") != std::string::npos;
    if (!is_override(plan, name) && names_flag(said, "--" + name) && !is_told) {
      message += " (--" + name + " is " + origin + ")";
    }
  }
  return message;
}

}  // namespace fsdp2::config
