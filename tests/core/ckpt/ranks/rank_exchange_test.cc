// How long ranks wait for each other while a checkpoint is written.
#include "core/ckpt/ranks/rank_exchange.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/core/base/file_fixture.h"
#include "tests/support/ranks.h"

namespace fsdp2::ckpt {
namespace {

using std::chrono::milliseconds;

RankOptions with_timeout(milliseconds timeout) {
  RankOptions options;
  options.timeout = timeout;
  return options;
}

TEST(RankExchange, WaitsForLongerThanTheTimeOutWhileARankGetsOn) {
  const auto options = with_timeout(milliseconds(1500));
  run_ranks(
      2,
      [](const std::shared_ptr<World>& world) {
        RankExchange exchange(*world);
        if (world->rank() == 1) {
          EXPECT_EQ(exchange.get("done", "rank 0"), "it is");
          return;
        }
        const auto end = std::chrono::steady_clock::now() + 2 * world->timeout();
        while (std::chrono::steady_clock::now() < end) {
          exchange.note_progress();
          std::this_thread::sleep_for(milliseconds(50));
        }
        exchange.put("done", "it is");
      },
      options);
}

TEST(RankExchange, GivesUpWhenNoRankGetsOn) {
  run_ranks(
      2,
      [](const std::shared_ptr<World>& world) {
        RankExchange exchange(*world);
        exchange.note_progress();
        if (world->rank() == 1) {
          EXPECT_ERROR(exchange.get("done", "rank 0 to be done"), Code::kTimeout,
                       "rank 0 to be done");
        }
      },
      with_timeout(milliseconds(300)));
}

TEST(RankExchange, KnowsWhetherAllHaveRead) {
  run_ranks(
      2,
      [](const std::shared_ptr<World>& world) {
        RankExchange first(*world);
        RankExchange second(*world);
        if (world->rank() == 1) {
          first.note_read();
        } else {
          EXPECT_TRUE(first.wait_until_read_by(1));
          EXPECT_FALSE(second.wait_until_read_by(1));
        }
      },
      with_timeout(milliseconds(1000)));
}

}  // namespace
}  // namespace fsdp2::ckpt
