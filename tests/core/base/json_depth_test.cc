#include "core/base/json_depth.h"

#include <gtest/gtest.h>

#include <string>

namespace fsdp2 {
namespace {

TEST(JsonDepth, IsOfListsAndObjectsInOneAnother) {
  EXPECT_FALSE(is_nested_deeper("", 0));
  EXPECT_FALSE(is_nested_deeper("1", 0));
  EXPECT_TRUE(is_nested_deeper("[]", 0));
  EXPECT_FALSE(is_nested_deeper(R"([{"a": []}, {"b": {}}])", 3));
  EXPECT_TRUE(is_nested_deeper(R"([{"a": []}, {"b": {}}])", 2));
  EXPECT_TRUE(is_nested_deeper(std::string(1'000'000, '['), kMostJsonDepth));
}

TEST(JsonDepth, IsNotOfWhatStringsHold) {
  EXPECT_FALSE(is_nested_deeper(R"(["[[[", "\"[[[", "\\", "{{{"])", 1));
  EXPECT_TRUE(is_nested_deeper(R"(["\\", [["]"]]])", 2));
  EXPECT_FALSE(is_nested_deeper(R"("[)", 0));
  EXPECT_FALSE(is_nested_deeper(R"("\)", 0));
}

}  // namespace
}  // namespace fsdp2
