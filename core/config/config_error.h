// What is wrong with a configuration: the user's mistake, in one line. This room needs no LibTorch,
// so that a launcher can read the configuration of the ranks that it is to start; so the error is
// not the core's Error.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace fsdp2::config {

// What is quoted from a file may have anything in it.
inline std::string in_one_line(std::string text) {
  const auto is_control = [](unsigned char letter) { return letter < ' ' || letter == 0x7F; };
  std::replace_if(text.begin(), text.end(), is_control, ' ');
  return text;
}

class ConfigError : public std::runtime_error {
 public:
  explicit ConfigError(std::string message) : std::runtime_error(in_one_line(std::move(message))) {}
};

}  // namespace fsdp2::config
