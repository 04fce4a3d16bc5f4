// Where a value stands in nested dicts and lists, and the name that follows from it.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace fsdp2::ckpt {

// A step into a dict or a list.
using PathPart = std::variant<std::string, int64_t>;
// {"optim", "param_groups", 0, "lr"}
using StatePath = std::vector<PathPart>;

// The parts joined by dots: "optim.param_groups.0.lr".
std::string name_of(const StatePath& path);

}  // namespace fsdp2::ckpt
