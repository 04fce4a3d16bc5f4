// Names of what is in a tree of modules: "part.inside.weight".
#pragma once

#include <string>

namespace fsdp2::exported {

// "" for a name without a dot.
inline std::string parent_path(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

inline std::string own_name(const std::string& path) { return path.substr(path.rfind('.') + 1); }

}  // namespace fsdp2::exported
