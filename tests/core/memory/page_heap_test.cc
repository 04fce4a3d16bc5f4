#include "core/memory/page_heap.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/few_allocations.h"

namespace fsdp2::memory {
namespace {

constexpr size_t kPage = PageHeap::kPage;

uintptr_t address_of(const void* block) { return reinterpret_cast<uintptr_t>(block); }

TEST(PageHeap, ItsPagesAreWholePagesOfTheSystem) {
  EXPECT_EQ(kPage % static_cast<size_t>(::sysconf(_SC_PAGESIZE)), 0U);
}

TEST(PageHeap, ABlockIsWritableAndBeginsAtAPage) {
  PageHeap heap;
  void* block = heap.take(3 * kPage + 1);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(address_of(block) % static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)), 0U);
  std::memset(block, 1, 4 * kPage);
  EXPECT_EQ(heap.in_use(), 4 * kPage);
  heap.give(block);
}

TEST(PageHeap, AFreedBlockIsGivenOutAgain) {
  PageHeap heap;
  void* block = heap.take(8 * kPage);
  heap.give(block);
  EXPECT_FALSE(heap.holds(block));
  EXPECT_EQ(heap.take(8 * kPage), block);
  EXPECT_TRUE(heap.holds(block));
  heap.give(block);
}

TEST(PageHeap, TheSmallestRangeThatFitsIsTaken) {
  PageHeap heap;
  void* large = heap.take(64 * kPage);
  void* wall = heap.take(kPage);
  void* small = heap.take(8 * kPage);
  void* end = heap.take(kPage);
  heap.give(large);
  heap.give(small);
  EXPECT_EQ(heap.take(7 * kPage), small);
  EXPECT_EQ(heap.take(9 * kPage), large);
  for (void* block : {wall, end, large, small}) {
    heap.give(block);
  }
}

TEST(PageHeap, NeighboursThatAreFreedAreOneRange) {
  PageHeap heap;
  void* whole = heap.take(12 * kPage);
  heap.give(whole);
  std::vector<void*> parts;
  for (int i = 0; i < 3; ++i) {
    parts.push_back(heap.take(4 * kPage));
  }
  EXPECT_EQ(heap.kept(), 0U);
  for (const int i : {0, 2, 1}) {
    heap.give(parts[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(heap.take(12 * kPage), whole);
  heap.give(whole);
}

TEST(PageHeap, WhatIsHeldIsNeverMoreThanWasInUseAtOnce) {
  PageHeap heap;
  std::mt19937 random(0);
  std::vector<void*> blocks;
  size_t most = 0;
  for (int i = 0; i < 4000; ++i) {
    const bool takes = blocks.empty() || random() % 100 < (i / 1000 % 2 == 0 ? 60 : 40);
    if (takes) {
      void* block = heap.take((1 + random() % 20) * kPage);
      ASSERT_NE(block, nullptr);
      *static_cast<char*>(block) = 1;
      blocks.push_back(block);
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      heap.give(blocks.back());
      blocks.pop_back();
    }
    most = std::max(most, heap.in_use());
    ASSERT_EQ(heap.most_in_use(), most);
    ASSERT_LE(heap.in_use() + heap.kept(), most);
  }
  for (void* block : blocks) {
    heap.give(block);
  }
  EXPECT_EQ(heap.in_use(), 0U);
}

TEST(PageHeap, BlocksInUseDoNotOverlap) {
  PageHeap heap;
  std::mt19937 random(1);
  std::map<uintptr_t, size_t> blocks;
  for (int i = 0; i < 4000; ++i) {
    if (blocks.empty() || random() % 2 == 0) {
      const size_t size = (1 + random() % 64) * kPage;
      const uintptr_t begin = address_of(heap.take(size));
      const auto next = blocks.lower_bound(begin);
      ASSERT_TRUE(next == blocks.end() || begin + size <= next->first);
      ASSERT_TRUE(next == blocks.begin() ||
                  std::prev(next)->first + std::prev(next)->second <= begin);
      blocks.emplace(begin, size);
    } else {
      const auto block = std::next(blocks.begin(), static_cast<int>(random() % blocks.size()));
      heap.give(reinterpret_cast<void*>(block->first));
      blocks.erase(block);
    }
  }
  for (const auto& block : blocks) {
    heap.give(reinterpret_cast<void*>(block.first));
  }
}

TEST(PageHeap, GivingBackLeavesNothingButWhatIsInUse) {
  PageHeap heap;
  void* used = heap.take(16 * kPage);
  heap.give(heap.take(1024 * kPage));
  EXPECT_EQ(heap.kept(), 1024 * kPage);
  heap.give_back_kept();
  EXPECT_EQ(heap.kept(), 0U);
  EXPECT_EQ(heap.most_in_use(), 16 * kPage);
  std::memset(used, 1, 16 * kPage);
  heap.give(used);
}

TEST(PageHeap, WhatTheSystemDoesNotHaveIsNull) {
  PageHeap heap;
  void* block = heap.take(kPage);
  heap.give(block);
  EXPECT_EQ(heap.take(size_t{1} << 62), nullptr);
  EXPECT_EQ(heap.take(std::numeric_limits<size_t>::max()), nullptr);
  EXPECT_EQ(heap.in_use(), 0U);
  EXPECT_EQ(heap.most_in_use(), kPage);
}

// With room for nothing, and for one of the two entries of a range.
TEST(PageHeap, ABlockThatCannotBeNotedWhenItIsFreedGoesToTheSystem) {
  for (const int left : {0, 1}) {
    PageHeap heap;
    void* block = heap.take(kPage);
    {
      const FewAllocations few(left);
      heap.give(block);
    }
    EXPECT_EQ(heap.kept(), 0U) << left;
    EXPECT_EQ(heap.in_use(), 0U) << left;
    heap.give(heap.take(2 * kPage));
    EXPECT_EQ(heap.kept(), 2 * kPage) << left;
  }
}

TEST(PageHeap, ABlockThatCannotBeNotedWhenItIsTakenIsNull) {
  PageHeap heap;
  {
    const FewAllocations none(0);
    EXPECT_EQ(heap.take(kPage), nullptr);
  }
  EXPECT_EQ(heap.in_use(), 0U);
}

}  // namespace
}  // namespace fsdp2::memory
