#include "core/ckpt/store/path_content.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

class PathContentTest : public FileTest {};

TEST_F(PathContentTest, AFileIsKnownByItsFirstBytes) {
  const PathContent content(write("x", "0123456789"));
  EXPECT_FALSE(content.is_directory());
  EXPECT_EQ(content.begin(), "012345678");
  EXPECT_FALSE(content.has_name([](const std::string& /*name*/) { return true; }));
  EXPECT_EQ(PathContent(write("short", "ab")).begin(), "ab");
}

TEST_F(PathContentTest, ADirectoryIsKnownByTheNamesInIt) {
  write("run/__0_0.distcp", "");
  const PathContent content(path("run"));
  EXPECT_TRUE(content.is_directory());
  EXPECT_EQ(content.begin(), "");
  EXPECT_TRUE(content.has_name_ending(".distcp"));
  EXPECT_FALSE(content.has_name_ending(".safetensors"));
}

TEST_F(PathContentTest, NothingThereIsNotFound) {
  EXPECT_ERROR(PathContent(path("missing")), Code::kNotFound, "there is no such file");
}

}  // namespace
}  // namespace fsdp2::ckpt
