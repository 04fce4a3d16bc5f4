#include "core/nn/layers/packed_sequences.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdp2::nn {
namespace {

using ::testing::ElementsAre;

TEST(PackedSequences, PositionsBeginAnewInEachAndShowWhereTheyBegin) {
  const at::Tensor cu_seqlens = at::tensor({0, 2, 5, 8, 10}, at::kInt);
  const auto boundaries = read_boundaries(cu_seqlens, 2, 5);
  EXPECT_THAT(boundaries, ElementsAre(0, 2, 5, 8, 10));
  const at::Tensor positions = positions_in(boundaries, 2, 5);
  EXPECT_TRUE(positions.equal(at::tensor({0, 1, 0, 1, 2, 0, 1, 2, 0, 1}, at::kLong).view({2, 5})));
  EXPECT_TRUE(find_boundaries(positions).equal(cu_seqlens.to(at::kLong)));
}

TEST(PackedSequences, OneSequenceARowIsNone) {
  EXPECT_FALSE(find_boundaries(at::arange(3, 8).expand({2, 5})).defined());
  EXPECT_TRUE(find_boundaries(at::tensor({0, 1, 3, 4, 5}, at::kLong).view({1, 5})).defined());
}

TEST(PackedSequences, PaddingIsSeenByItselfAlone) {
  const at::Tensor mask = mask_of_padding(at::tensor({0, 1, 1, 1, 1, 0}, at::kLong).view({2, 3}));
  const at::Tensor expected = at::tensor({1, 0, 0, 0, 1, 0, 0, 1, 1,  // padding in front
                                          1, 0, 0, 1, 1, 0, 1, 1, 1},
                                         at::kLong);
  EXPECT_TRUE(mask.equal(expected.view({2, 1, 3, 3}).to(at::kBool)));
}

}  // namespace
}  // namespace fsdp2::nn
