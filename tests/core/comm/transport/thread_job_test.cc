// Ranks that come while another one gives up belong to the next job of the name.
#include "core/comm/transport/thread_job.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "core/base/error.h"

namespace fsdp2 {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kTimeout{1};

struct Outcome {
  bool joined = false;
  Clock::duration waited{};
};

Outcome join_at(Clock::time_point time, int rank) {
  while (Clock::now() < time) {
  }
  const auto start = Clock::now();
  try {
    ThreadJob::join("meeting", rank, 2, kTimeout);
    return {true, Clock::now() - start};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kTimeout) << error.message();
    return {false, Clock::now() - start};
  }
}

// The second rank comes just when the first one's time is over: a little earlier or later each
// time.
TEST(ThreadJob, IsJoinedByAllItsRanksOrByNoneAfterItsTime) {
  constexpr int kRounds = 1500;
  constexpr microseconds kEarliest{-50};
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now() + milliseconds(1);
    Outcome first;
    std::thread other([&] { first = join_at(start, 0); });
    const Outcome second = join_at(start + kTimeout + kEarliest + microseconds(round % 200), 1);
    other.join();
    ASSERT_EQ(first.joined, second.joined) << "round " << round;
    ASSERT_TRUE(second.joined || second.waited >= kTimeout) << "round " << round;
  }
}

}  // namespace
}  // namespace fsdp2
