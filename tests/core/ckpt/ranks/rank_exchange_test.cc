// How long ranks wait for each other while a checkpoint is written.
#include "core/ckpt/ranks/rank_exchange.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/core/base/file_fixture.h"
#include "tests/support/ranks.h"

namespace fsdp2::ckpt {
namespace {

using std::chrono::milliseconds;

// These begin at once.
constexpr auto kNoPreparation = [](const std::shared_ptr<World>&) {};

RankOptions with_timeout(milliseconds timeout) {
  RankOptions options;
  options.timeout = timeout;
  return options;
}

TEST(RankExchange, WaitsForLongerThanTheTimeOutWhileARankGetsOn) {
  const auto options = with_timeout(milliseconds(8000));
  run_ranks(
      2,
      [](const std::shared_ptr<World>& world) {
        RankExchange exchange(*world);
        if (world->rank() == 1) {
          EXPECT_EQ(exchange.get("done", 0, "to be done"), "it is");
          return;
        }
        const auto end = std::chrono::steady_clock::now() + world->timeout() + milliseconds(2000);
        while (std::chrono::steady_clock::now() < end) {
          exchange.note_progress();
          std::this_thread::sleep_for(milliseconds(50));
        }
        exchange.put("done", "it is");
      },
      options);
}

TEST(RankExchange, GivesUpWhenNoRankGetsOn) {
  run_ranks_to_the_time_out(2, kNoPreparation, [](const std::shared_ptr<World>& world) {
    RankExchange exchange(*world);
    exchange.note_progress();
    if (world->rank() == 1) {
      EXPECT_ERROR(exchange.get("done", 0, "to be done"), Code::kTimeout, "rank 0 to be done");
    }
  });
}

// Rank 1 is busy all the time, but rank 2 has nothing to show.
TEST(RankExchange, GivesUpOnARankThatDoesNotGetOnHoweverBusyAnotherIs) {
  run_ranks_to_the_time_out(3, kNoPreparation, [](const std::shared_ptr<World>& world) {
    RankExchange exchange(*world);
    if (world->rank() == 0) {
      EXPECT_ERROR(exchange.get("done", 2, "to be done"), Code::kTimeout,
                   "rank 2 to be done: it has ended, is stopped or is late");
      exchange.put("over", "");
    }
    while (world->rank() == 1 && !world->store().check({"checkpoint/1/over"})) {
      exchange.note_progress();
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
}

// Rank 1 begins to wait for rank 0 long before rank 0 begins to wait for all.
TEST(RankExchange, WhoWaitsForAllIsNotTakenForTheOneThatIsLate) {
  run_ranks(
      3,
      [](const std::shared_ptr<World>& world) {
        RankExchange exchange(*world);
        const auto key = [](int rank) { return fmt::format("result/{}", rank); };
        if (world->rank() == 2) {
          return;
        }
        exchange.put(key(world->rank()), "done");
        if (world->rank() == 1) {
          EXPECT_EQ(exchange.get("outcome", 0, "to be done"), "known");
          return;
        }
        std::this_thread::sleep_for(world->timeout() / 4);
        const auto answers = exchange.get_of_all(key, "to be done");
        ASSERT_EQ(answers.size(), 3U);
        EXPECT_EQ(answers[0].text, "done");
        EXPECT_EQ(answers[1].text, "done");
        ASSERT_TRUE(answers[2].error.has_value());
        EXPECT_EQ(answers[2].error->code(), Code::kTimeout);
        EXPECT_NE(answers[2].error->message().find("for rank 2 to be done"), std::string::npos);
        exchange.put("outcome", "known");
      },
      with_timeout(milliseconds(8000)));
}

TEST(RankExchange, WaitsForSeveralThatAreGoneNoLongerThanForOne) {
  run_ranks(
      4,
      [](const std::shared_ptr<World>& world) {
        RankExchange exchange(*world);
        if (world->rank() == 0) {
          const auto start = std::chrono::steady_clock::now();
          const auto answers = exchange.get_of_all(
              [](int rank) { return fmt::format("result/{}", rank); }, "to be done");
          EXPECT_LT(std::chrono::steady_clock::now() - start, 3 * world->timeout());
          for (const RankExchange::Answer& answer : answers) {
            EXPECT_TRUE(answer.error.has_value());
          }
        }
      },
      with_timeout(milliseconds(6000)));
}

// Rank 0 keeps the store, which does not answer then.
TEST(RankExchangeProcesses, AStoppedRankZeroIsATimeOutThatNamesIt) {
  const auto ends = spawn_ranks(
      3,
      [](const std::shared_ptr<World>& world) {
        RankExchange exchange(*world);
        world->control().barrier();
        if (world->rank() == 0) {
          raise(SIGSTOP);
        }
        EXPECT_ERROR(exchange.get("done", 0, "to be done"), Code::kTimeout,
                     "for rank 0 to be done: the store that the ranks meet at does not answer");
      },
      with_timeout(milliseconds(12000)));
  for (const int rank : {1, 2}) {
    EXPECT_EQ(ends[rank].exit_code, 0) << ends[rank].output;
    EXPECT_LT(ends[rank].seconds, 12 + 5) << ends[rank].output;
  }
}

TEST(RankExchange, KnowsWhetherAllHaveRead) {
  run_ranks(
      2,
      [](const std::shared_ptr<World>& world) {
        RankExchange first(*world);
        RankExchange second(*world);
        if (world->rank() == 1) {
          std::this_thread::sleep_for(milliseconds(5500));  // as on a machine that is busy
          first.note_read();
        } else {
          EXPECT_TRUE(first.wait_until_read_by(1));
        }
        world->control().barrier();
        world->failure().publish("over");  // nobody is waited for as long any more
        EXPECT_FALSE(second.wait_until_read_by(1));
      },
      with_timeout(milliseconds(60000)));
}

}  // namespace
}  // namespace fsdp2::ckpt
