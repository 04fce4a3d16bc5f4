#include "core/base/quiet_thread.h"

#include <gtest/gtest.h>
#include <signal.h>

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

}  // namespace
}  // namespace fsdp2
