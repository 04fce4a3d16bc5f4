#include "core/base/text.h"

#include <gtest/gtest.h>

namespace fsdp2 {
namespace {

TEST(Text, SomeOfManyNamesAreListed) {
  EXPECT_EQ(list_some({}, 2), "");
  EXPECT_EQ(list_some({"a", "b"}, 2), "a, b");
  EXPECT_EQ(list_some({"a", "b", "c"}, 2), "a, b, ...");
}

}  // namespace
}  // namespace fsdp2
