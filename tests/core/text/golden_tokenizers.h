// Small tokenizers, and what Python's libraries make of texts and chats with them
// (make_goldens.py).
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace fsdp2::text {

// The directory of one.
inline std::string golden(const std::string& name) { return "tests/core/text/golden/" + name; }

inline nlohmann::json expected(const std::string& name) {
  std::ifstream file(golden(name) + "/expected.json");
  return nlohmann::json::parse(file);
}

}  // namespace fsdp2::text
