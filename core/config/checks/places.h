// Where the values of a plan come from, for messages about them.
#pragma once

#include <string>

#include "core/config/config_error.h"
#include "core/config/plan.h"

namespace fsdp2::config {

// Whether a flag or a caller has given the value of `key`, and no file.
bool is_override(const Plan& plan, const std::string& key);

// "MESSAGE (--lr is run.yaml:12 training_args.learning_rate)", for each flag in `message` that
// comes from a file, unless the message has its place already.
std::string message_with_places(std::string message, const Plan& plan);

// What a ConfigError from `check` says, it says with places.
template <typename Check>
void with_places(const Plan& plan, const Check& check) {
  try {
    check();
  } catch (const ConfigError& error) {
    throw ConfigError(message_with_places(error.what(), plan));
  }
}

}  // namespace fsdp2::config
