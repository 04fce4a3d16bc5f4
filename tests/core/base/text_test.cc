#include "core/base/text.h"

#include <gtest/gtest.h>

namespace fsdp2 {
namespace {

TEST(Text, SomeOfManyNamesAreListed) {
  EXPECT_EQ(list_some({}, 2), "");
  EXPECT_EQ(list_some({"a", "b"}, 2), "a, b");
  EXPECT_EQ(list_some({"a", "b", "c"}, 2), "a, b, ...");
}

TEST(Text, AWordNamesTheCandidateThatItIsNearTo) {
  const std::vector<std::string> names = {"in_features", "out_features", "bias", "eps"};
  EXPECT_EQ(nearest_name("in_feature", names), "in_features");
  EXPECT_EQ(nearest_name("outfeatures", names), "out_features");
  EXPECT_EQ(nearest_name("features", names), "in_features");  // a part of two: the first
  EXPECT_EQ(nearest_name("Bias", names), "bias");
  EXPECT_EQ(nearest_name("device", names), "");
  EXPECT_EQ(nearest_name("", {}), "");
  EXPECT_EQ(nearest_name(std::string(1000, 'b'), names), "");
}

}  // namespace
}  // namespace fsdp2
