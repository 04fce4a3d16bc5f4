// What tests of files need: a directory of their own, files with given bytes, and errors as values.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace fsdp2 {

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string pattern = testing::TempDir() + "fsdp2-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~FileTest() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  static std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

 private:
  std::string directory_;
};

// The Error that an action throws; a test failure and an empty error if it throws none.
template <typename Action>
Error error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "expected an error";
  return {Code::kInternal, ""};
}

// Checks code and part of the message of an action's error.
#define EXPECT_ERROR(action, expected_code, expected_text)                             \
  do {                                                                                 \
    const ::fsdp2::Error error_ = ::fsdp2::error_of([&] { action; });                  \
    EXPECT_EQ(static_cast<int>(error_.code()), static_cast<int>(expected_code));       \
    EXPECT_NE(error_.message().find(expected_text), std::string::npos)                 \
        << "message: " << error_.message() << "\nexpected in it: " << (expected_text); \
    EXPECT_EQ(error_.message().find('\n'), std::string::npos) << "more than one line"; \
  } while (false)

}  // namespace fsdp2
