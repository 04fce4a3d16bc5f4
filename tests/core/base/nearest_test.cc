#include "core/base/nearest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fsdp2 {
namespace {

TEST(Nearest, IsTheCandidateOfFewestMistakes) {
  const std::vector<std::string> names = {"in_features", "out_features", "bias", "eps"};
  EXPECT_EQ(nearest("in_feature", names), "in_features");
  EXPECT_EQ(nearest("outfeatures", names), "out_features");
  EXPECT_EQ(nearest("features", names), "in_features");  // a part of two: the first
  EXPECT_EQ(nearest("Bias", names), "bias");
  EXPECT_EQ(nearest("device", names), "");
  EXPECT_EQ(nearest("--batch", {"--global-batch"}), "--global-batch");
  EXPECT_EQ(nearest("bais", names), "bias");
  EXPECT_EQ(nearest("", {}), "");
  EXPECT_EQ(nearest(std::string(1000, 'b'), names), "");
}

}  // namespace
}  // namespace fsdp2
