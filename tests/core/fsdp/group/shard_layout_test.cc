#include "core/fsdp/group/shard_layout.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace fsdp2::fsdp {
namespace {

using Sizes = std::vector<int64_t>;

Sizes lengths(const Sizes& shape, int world) {
  Sizes result;
  for (int rank = 0; rank < world; ++rank) {
    result.push_back(ShardLayout::make(shape, 0, rank, world).length);
  }
  return result;
}

TEST(ShardLayout, UnevenDim0CutsTheLastRanks) {
  EXPECT_EQ(lengths({5, 3}, 4), (Sizes{2, 2, 1, 0}));
  EXPECT_EQ(lengths({7, 2, 2}, 4), (Sizes{2, 2, 2, 1}));
  EXPECT_EQ(lengths({331, 64}, 4), (Sizes{83, 83, 83, 82}));
}

TEST(ShardLayout, FewerRowsThanRanksLeavesTrailingRanksEmpty) {
  EXPECT_EQ(lengths({1, 2}, 4), (Sizes{1, 0, 0, 0}));
  const ShardLayout empty = ShardLayout::make({1, 2}, 0, 3, 4);
  EXPECT_EQ(empty.local_shape(), (Sizes{0, 2}));
  EXPECT_EQ(empty.start, 1);
  EXPECT_EQ(empty.padded_numel(), 2);
}

TEST(ShardLayout, EvenRowsNeedNoPadding) {
  const ShardLayout layout = ShardLayout::make({8, 3}, 0, 1, 4);
  EXPECT_TRUE(layout.even());
  EXPECT_EQ(layout.start, 2);
  EXPECT_EQ(layout.local_shape(), layout.padded_shape());
  EXPECT_EQ(layout.world * layout.padded_numel(), layout.global_numel());
}

TEST(ShardLayout, EveryRankStoresAPaddedChunk) {
  for (int rank = 0; rank < 4; ++rank) {
    const ShardLayout layout = ShardLayout::make({5, 3}, 0, rank, 4);
    EXPECT_FALSE(layout.even());
    EXPECT_EQ(layout.padded_shape(), (Sizes{2, 3}));
    EXPECT_EQ(layout.padded_numel(), 6);
  }
}

TEST(ShardLayout, OtherDimsAreCutAlike) {
  const ShardLayout layout = ShardLayout::make({3, 8}, 1, 2, 4);
  EXPECT_EQ(layout.local_shape(), (Sizes{3, 2}));
  EXPECT_EQ(layout.start, 4);
}

TEST(ShardLayout, ScalarsAndBadDimsAreRefused) {
  EXPECT_THROW(ShardLayout::make({}, 0, 0, 2), Error);
  EXPECT_THROW(ShardLayout::make({4}, 1, 0, 2), Error);
  EXPECT_THROW(ShardLayout::make({4}, -2, 0, 2), Error);
}

}  // namespace
}  // namespace fsdp2::fsdp
