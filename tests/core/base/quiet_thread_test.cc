#include "core/base/quiet_thread.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstddef>

#include "core/base/error.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2 {
namespace {

bool takes(int signal) {
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return ::sigismember(&mask, signal) == 0;
}

TEST(QuietThread, TakesNoSignalsAndItsStarterGoesOnTakingThem) {
  bool taken_there = true;
  start_quiet_thread([&] { taken_there = takes(SIGTERM) || takes(SIGINT); }).join();
  EXPECT_FALSE(taken_there);
  EXPECT_TRUE(takes(SIGTERM) && takes(SIGINT));
}

TEST(DeepStack, IsAsDeepAsAskedForAndTakesNoSignals) {
  constexpr size_t kBytes = size_t{64} << 20;
  bool taken_there = true;
  size_t used = 0;
  run_on_deep_stack(kBytes, [&] {
    volatile char block[kBytes - (kBytes >> 3)];
    for (size_t i = 0; i < sizeof(block); i += 1024) {
      block[i] = 1;
      used += static_cast<size_t>(block[i]) * 1024;
    }
    taken_there = takes(SIGTERM) || takes(SIGINT);
  });
  EXPECT_EQ(used, kBytes - (kBytes >> 3));
  EXPECT_FALSE(taken_there);
  EXPECT_TRUE(takes(SIGTERM) && takes(SIGINT));
}

TEST(DeepStack, ThrowsWhatItsWorkThrows) {
  EXPECT_ERROR(run_on_deep_stack(1 << 20, [] { throw Error(Code::kUnsupported, "too deep"); }),
               Code::kUnsupported, "too deep");
}

TEST(DeepStack, ThatNobodyHasIsAnError) {
  EXPECT_ERROR(run_on_deep_stack(size_t{1} << 60, [] {}), Code::kOutOfMemory,
               "expected a thread with a stack of 1152921504606846976 bytes");
}

}  // namespace
}  // namespace fsdp2
