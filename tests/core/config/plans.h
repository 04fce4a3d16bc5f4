// Plans of files, and what is wrong with files, for tests.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "core/config/config_error.h"
#include "core/config/dialects/read_plan.h"

namespace fsdp2::config {

using Texts = std::vector<std::string>;

inline Plan plan_from(const std::string& text, const std::string& role = "",
                      const Texts& sets = {}) {
  const std::string path = ::testing::TempDir() + "/run.yaml";
  std::ofstream(path) << text;
  return read_plan({path, role, sets});
}

// What is wrong, from the line number on.
inline std::string mistake_in(const std::string& text, const std::string& role = "",
                              const Texts& sets = {}) {
  try {
    plan_from(text, role, sets);
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    const std::string file = "run.yaml:";
    const size_t at = message.find(file);
    return at == std::string::npos ? message : message.substr(at + file.size());
  }
  return "";
}

}  // namespace fsdp2::config
