#include "cli/machine/scratch_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace fsdp2::cli {
namespace {

TEST(ScratchDirectory, IsRemovedWithAllThatIsInIt) {
  std::string file;
  {
    const ScratchDirectory scratch("scratch");
    file = scratch.write("note", "text");
    EXPECT_TRUE(std::filesystem::is_regular_file(file));
  }
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(file).parent_path()));
}

TEST(ScratchDirectory, WithoutAPlaceNamesTheVariableToSet) {
  const char* const set = std::getenv("TMPDIR");
  const std::string before = set == nullptr ? "" : set;
  setenv("TMPDIR", "/no/such/place", 1);
  try {
    const ScratchDirectory scratch("scratch");
    ADD_FAILURE() << "it was made at " << scratch.path("");
  } catch (const std::system_error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("expected TMPDIR to name one"));
  }
  before.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before.c_str(), 1);
}

}  // namespace
}  // namespace fsdp2::cli
