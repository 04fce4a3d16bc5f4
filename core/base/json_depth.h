// How deep JSON of files that may be hostile is nested. The library that reads it takes any depth,
// but recurses where it copies or prints a value, and would run out of stack.
#pragma once

#include <string_view>

namespace fsdp2 {

// For files whose depth no format limits.
inline constexpr int kMostJsonDepth = 64;

// Whether lists and objects lie in one another more than `most` deep. Text that is no JSON may be
// either.
bool is_nested_deeper(std::string_view json, int most);

}  // namespace fsdp2
