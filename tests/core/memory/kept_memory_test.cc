#include "core/memory/kept_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fsdp2::memory {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

at::Tensor bytes(int64_t count) {
  return at::empty({count}, at::device(at::kCPU).dtype(at::kByte));
}

int64_t minor_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Each test begins with nothing kept and ends so.
class KeptMemoryTest : public testing::Test {
 protected:
  KeptMemoryTest() { keep_memory(true); }
  ~KeptMemoryTest() override {
    keep_memory(false);
    EXPECT_EQ(kept_memory().kept, 0U);
  }
};

TEST_F(KeptMemoryTest, ATensorGetsTheMemoryOfOneThatWasFreed) {
  const void* first = bytes(8 * kMiB).data_ptr();
  EXPECT_EQ(kept_memory().kept, static_cast<size_t>(8 * kMiB));
  const at::Tensor second = bytes(8 * kMiB);
  EXPECT_EQ(second.data_ptr(), first);
  EXPECT_EQ(kept_memory().in_use, static_cast<size_t>(8 * kMiB));
}

TEST_F(KeptMemoryTest, SmallTensorsAreLeftToTheAllocatorBefore) {
  const at::Tensor small = bytes(kMiB - 1);
  EXPECT_EQ(kept_memory().in_use, 0U);
}

TEST_F(KeptMemoryTest, TensorsAreAlignedAsLibTorchsOwn) {
  for (const int64_t count : {int64_t{1}, int64_t{65}, kMiB - 1, kMiB, 5 * kMiB + 7}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes(count).data_ptr()) % 64, 0U) << count;
  }
  EXPECT_EQ(bytes(0).data_ptr(), nullptr);
}

TEST_F(KeptMemoryTest, SecondUseMakesNoPageFaults) {
  constexpr int64_t kSize = 64 * kMiB;
  bytes(kSize).fill_(1);
  const int64_t before = minor_faults();
  bytes(kSize).fill_(2);
  EXPECT_LT(minor_faults() - before, 16);
}

// How many pages of a tensor the system has given so far.
int64_t pages_given(const at::Tensor& tensor) {
  std::vector<unsigned char> given(static_cast<size_t>(tensor.numel() / ::sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(::mincore(tensor.data_ptr(), tensor.nbytes(), given.data()), 0);
  return std::count_if(given.begin(), given.end(), [](unsigned char page) { return page & 1; });
}

TEST_F(KeptMemoryTest, ZerosOfFreshPagesAreNotWritten) {
  constexpr int64_t kSize = 16 * kMiB;
  const at::Tensor like = bytes(kSize);
  const at::Tensor zeros = zeros_like(like, at::kByte);
  EXPECT_EQ(kept_memory().in_use, static_cast<size_t>(2 * kSize));
  if (pages_given(like) > 0) {
    GTEST_SKIP() << "this system does not tell which pages there are";
  }
  EXPECT_EQ(pages_given(zeros), 0);
  EXPECT_TRUE(zeros.eq(0).all().item<bool>());
}

TEST_F(KeptMemoryTest, ZerosOfMemoryThatWasUsedAreWritten) {
  const at::Tensor like = at::empty({3, 2 * kMiB}, at::kBFloat16).set_requires_grad(true);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    const void* const used = at::full({3, 2 * kMiB}, 7.0, dtype).data_ptr();
    const at::Tensor zeros = zeros_like(like, dtype);
    EXPECT_EQ(zeros.data_ptr(), used);
    EXPECT_EQ(zeros.sizes(), like.sizes());
    EXPECT_EQ(zeros.scalar_type(), dtype);
    EXPECT_FALSE(zeros.requires_grad());
    EXPECT_TRUE(zeros.eq(0).all().item<bool>());
  }
}

TEST_F(KeptMemoryTest, ZerosOfAnyOtherKindAreLibTorchs) {
  const at::Tensor turned = at::empty({2 * kMiB, 3}, at::kFloat).t();
  EXPECT_EQ(zeros_like(turned, at::kFloat).strides(), turned.strides());
  const at::Tensor meta = at::empty({2 * kMiB}, at::device(at::kMeta).dtype(at::kFloat));
  EXPECT_TRUE(zeros_like(meta, at::kFloat).is_meta());
  EXPECT_EQ(zeros_like(at::ones({3}), at::kDouble).sum().item<double>(), 0.0);
  keep_memory(false);
  EXPECT_TRUE(zeros_like(bytes(2 * kMiB), at::kByte).eq(0).all().item<bool>());
}

TEST_F(KeptMemoryTest, AnyThreadMayFree) {
  at::Tensor tensor = bytes(4 * kMiB);
  std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
  EXPECT_EQ(kept_memory().in_use, 0U);
  EXPECT_EQ(kept_memory().kept, static_cast<size_t>(4 * kMiB));
}

// Each thread writes its number into what it has, and finds it there.
TEST_F(KeptMemoryTest, NoMemoryIsGivenToTwoThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> strangers = 0;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([number, &strangers] {
      for (int i = 0; i < 200; ++i) {
        const at::Tensor tensor = bytes((1 + (i + number) % 3) * kMiB).fill_(number);
        std::this_thread::yield();
        strangers += tensor.eq(number).all().item<bool>() ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(strangers, 0);
}

TEST_F(KeptMemoryTest, WhatIsInUseOutlivesTheKeeping) {
  const at::Tensor tensor = bytes(2 * kMiB).fill_(7);
  keep_memory(false);
  EXPECT_TRUE(tensor.eq(7).all().item<bool>());
}

TEST_F(KeptMemoryTest, WhatIsFreedAfterTheKeepingGoesToTheSystem) {
  at::Tensor tensor = bytes(2 * kMiB);
  keep_memory(false);
  tensor.reset();
  EXPECT_EQ(kept_memory().in_use, 0U);
  EXPECT_EQ(kept_memory().kept, 0U);
}

TEST_F(KeptMemoryTest, TensorsFromBeforeAreFreedAsBefore) {
  keep_memory(false);
  at::Tensor tensor = bytes(2 * kMiB);
  keep_memory(true);
  tensor.reset();
  EXPECT_EQ(kept_memory().kept, 0U);
}

TEST_F(KeptMemoryTest, AChildOfAForkHasMemoryOfItsOwn) {
  at::Tensor kept = bytes(2 * kMiB);
  const at::Tensor tensor = bytes(2 * kMiB);
  auto* const data = tensor.mutable_data_ptr<uint8_t>();
  data[0] = 1;
  kept.reset();
  const pid_t child = ::fork();
  if (child == 0) {
    data[0] = 2;
    const at::Tensor other = bytes(2 * kMiB);
    _exit(other.data_ptr() == data ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(data[0], 1);
}

std::string message_of_allocation(int64_t count) {
  try {
    bytes(count);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST_F(KeptMemoryTest, MemoryThatCannotBeHadIsLibTorchsError) {
  constexpr int64_t kTooMuch = int64_t{1} << 50;
  const std::string kept = message_of_allocation(kTooMuch);
  keep_memory(false);
  EXPECT_NE(kept.find("can't allocate memory"), std::string::npos) << kept;
  EXPECT_EQ(kept, message_of_allocation(kTooMuch));
}

}  // namespace
}  // namespace fsdp2::memory
