#include "core/ckpt/ranks/snapshot_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace fsdp2::ckpt {
namespace {

// Beyond what malloc serves from memory that has been used before.
constexpr int64_t kBytes = int64_t{64} << 20;
constexpr int64_t kPage = 4096;

// How many pages the kernel has made, of those that lie in the first `bytes`.
int64_t pages_made(const at::Tensor& memory, int64_t bytes) {
  const auto begin = (reinterpret_cast<uintptr_t>(memory.data_ptr()) + kPage - 1) / kPage * kPage;
  std::vector<unsigned char> made(static_cast<size_t>(bytes / kPage - 1));
  EXPECT_EQ(::mincore(reinterpret_cast<void*>(begin), made.size() * kPage, made.data()), 0);
  return std::accumulate(made.begin(), made.end(), int64_t{0},
                         [](int64_t sum, unsigned char page) { return sum + (page & 1); });
}

TEST(SnapshotMemory, IsThereBeforeItIsUsed) {
  SnapshotMemory fresh;
  EXPECT_EQ(pages_made(fresh.take(kBytes), kBytes), 0);
  SnapshotMemory reserved;
  reserved.reserve(kBytes, kBytes);
  EXPECT_EQ(pages_made(reserved.take(kBytes), kBytes), kBytes / kPage - 1);
}

TEST(SnapshotMemory, HasPagesOnlyForWhatIsExpected) {
  SnapshotMemory memory;
  memory.reserve(kBytes, kBytes / 4);
  const at::Tensor taken = memory.take(kBytes);
  EXPECT_EQ(pages_made(taken, kBytes / 4), kBytes / 4 / kPage - 1);
  EXPECT_LT(pages_made(taken, kBytes), kBytes / 2 / kPage);
}

TEST(SnapshotMemory, IsKeptAsLongAsThereIsRoom) {
  SnapshotMemory memory;
  memory.reserve(1000, 1000);
  const void* const first = memory.take(10).data_ptr();
  memory.reserve(1000, 1000);
  EXPECT_EQ(memory.take(1000).data_ptr(), first);
  EXPECT_GE(memory.take(kBytes).numel(), kBytes);
  EXPECT_GE(memory.take(0).numel(), kBytes);
}

TEST(SnapshotMemory, MayBeAskedForMoreOrGivenUpWhileItIsMade) {
  SnapshotMemory memory;
  memory.reserve(kBytes, kBytes);
  memory.reserve(2 * kBytes, kBytes);
}

}  // namespace
}  // namespace fsdp2::ckpt
