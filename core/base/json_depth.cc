#include "core/base/json_depth.h"

#include <cstddef>

namespace fsdp2 {

namespace {

// Where the string that begins at `quote` ends.
size_t closing_quote(std::string_view json, size_t quote) {
  size_t i = quote + 1;
  while (i < json.size() && json[i] != '"') {
    i += json[i] == '\\' ? 2 : 1;
  }
  return i;
}

}  // namespace

bool is_nested_deeper(std::string_view json, int most) {
  int open = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"') {
      i = closing_quote(json, i);
    } else if (json[i] == '[' || json[i] == '{') {
      if (++open > most) {
        return true;
      }
    } else if (json[i] == ']' || json[i] == '}') {
      --open;
    }
  }
  return false;
}

}  // namespace fsdp2
