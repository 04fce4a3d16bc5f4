#include "core/ckpt/value/state_path.h"

#include <fmt/format.h>

namespace fsdp2::ckpt {

std::string name_of(const StatePath& path) {
  std::string name;
  for (const PathPart& part : path) {
    const auto* text = std::get_if<std::string>(&part);
    name +=
        (name.empty() ? "" : ".") + (text != nullptr ? *text : fmt::to_string(std::get<1>(part)));
  }
  return name;
}

}  // namespace fsdp2::ckpt
