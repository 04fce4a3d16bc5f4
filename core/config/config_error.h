// What is wrong with a configuration: the user's mistake, in one line. This room stands on nothing
// else, LibTorch included, so that a launcher can read the configuration of the ranks that it is
// to start; so the error is not the core's Error.
#pragma once

#include <stdexcept>

namespace fsdp2::config {

class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace fsdp2::config
