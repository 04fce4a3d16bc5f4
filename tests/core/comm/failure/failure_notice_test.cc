#include "core/comm/failure/failure_notice.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "core/base/error.h"
#include "core/comm/failure/roll_call.h"
#include "tests/core/comm/meet/silent_store.h"
#include "tests/support/errors.h"

namespace fsdp2 {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTimeout{20000};

void wait_for_failure(const FailureNotice& notice) {
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  while (!notice.failed() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::vector<std::shared_ptr<FailureNotice>> notices(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int size,
                                                    std::chrono::milliseconds timeout = kTimeout) {
  std::vector<std::shared_ptr<FailureNotice>> result;
  for (int rank = 0; rank < size; ++rank) {
    result.push_back(FailureNotice::over_store(store, rank, size, timeout));
  }
  return result;
}

void leave(std::vector<std::shared_ptr<FailureNotice>>& notices) {
  while (!notices.empty()) {
    notices.pop_back();  // rank 0 last: it waits for the others
  }
}

TEST(FailureNotice, ATextReachesAllRanksAndTheFirstOneStays) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto ranks = notices(store, 3);
  EXPECT_FALSE(ranks[0]->failed());
  EXPECT_EQ(ranks[0]->text(), "");
  ranks[1]->publish("rank 1 is out of memory");
  EXPECT_TRUE(ranks[1]->failed());
  for (const auto& rank : ranks) {
    wait_for_failure(*rank);
    rank->publish("another failure");
    EXPECT_EQ(rank->text(), "rank 1 is out of memory");
  }
  leave(ranks);
}

// The threads of this process that may run a handler of the signal.
int threads_that_take(int signal) {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) == 0) {
        const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
        count += (blocked >> (signal - 1) & 1) == 0 ? 1 : 0;
      }
    }
  }
  return count;
}

TEST(FailureNotice, ItsThreadsRunNoHandlersOfTheProcess) {
  const int before = threads_that_take(SIGTERM);
  auto ranks = notices(c10::make_intrusive<c10d::HashStore>(), 2);
  EXPECT_EQ(threads_that_take(SIGTERM), before);
  leave(ranks);
}

// What notices of some ranks say of a failure among ranks 0 and 1.
void expect_only_those_who_share_a_rank_to_fail(FailureNotice& teller,
                                                const FailureNotice& hearer) {
  const auto below = hearer.of({1, 0});
  const auto beside = hearer.of({2, 3});
  const auto across = hearer.of({1, 2});
  teller.of({0, 1})->publish("rank 1 is out of memory");
  wait_for_failure(*below);
  EXPECT_EQ(below->text(), "rank 1 is out of memory");
  EXPECT_EQ(across->text(), "rank 1 is out of memory");
  EXPECT_EQ(hearer.text(), "rank 1 is out of memory");  // of all ranks
  EXPECT_FALSE(beside->failed());
  EXPECT_EQ(beside->text(), "");
  // The ranks beside have a failure of their own, and the others hear of theirs as before.
  teller.of({2, 3})->publish("rank 3 has lost its data");
  wait_for_failure(*beside);
  EXPECT_EQ(beside->text(), "rank 3 has lost its data");
  EXPECT_EQ(across->text(), "rank 1 is out of memory");
  EXPECT_EQ(hearer.text(), "rank 1 is out of memory");
}

TEST(FailureNotice, AFailureEndsThoseAloneWhoShareARankWithIt) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto ranks = notices(store, 4);
  expect_only_those_who_share_a_rank_to_fail(*ranks[1], *ranks[3]);
  leave(ranks);
  const auto threads = FailureNotice::local();
  expect_only_those_who_share_a_rank_to_fail(*threads, *threads);
}

TEST(FailureNotice, OneOfAllRanksReachesThoseWhomAnEarlierOneSpared) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto ranks = notices(store, 3);
  ranks[0]->of({0, 1})->publish("the first");
  wait_for_failure(*ranks[2]);
  const auto spared = ranks[2]->of({2});
  EXPECT_FALSE(spared->failed());
  ranks[2]->publish("the job is given up");
  EXPECT_EQ(spared->text(), "the job is given up");
  EXPECT_EQ(ranks[2]->text(), "the first");
  leave(ranks);
}

TEST(FailureNotice, WhatIsSpreadReachesThoseWhomItSparedOnce) {
  const auto all = FailureNotice::local();
  const auto spared = all->of({2, 3});
  all->spread();
  EXPECT_FALSE(all->failed());  // there is nothing to spread
  all->of({0, 1})->publish("rank 1 is out of memory");
  spared->spread();
  EXPECT_FALSE(spared->failed());  // nor is there for these
  all->spread();
  EXPECT_EQ(spared->text(), "rank 1 is out of memory");
  EXPECT_EQ(all->text(), "rank 1 is out of memory");
}

TEST(FailureNotice, OfTwoAtOnceOneTextWinsEverywhere) {
  std::vector<std::string> texts;
  auto took = Clock::duration::max();
  for (int i = 0; i < 5 && took >= std::chrono::seconds(2); ++i) {  // then one may have given up
    const auto store = c10::make_intrusive<c10d::HashStore>();
    auto ranks = notices(store, 2);
    const auto start = Clock::now();
    std::thread other([&] { ranks[1]->publish("one"); });
    ranks[0]->publish("zero");
    other.join();
    took = Clock::now() - start;
    texts = {ranks[0]->text(), ranks[1]->text()};
    leave(ranks);
  }
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(FailureNotice, AllMayLeaveAtOnceWithoutWaiting) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto ranks = notices(store, 3);
  const auto start = Clock::now();
  leave(ranks);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(12));  // else 15 s of waiting
}

TEST(FailureNotice, RankZeroWaitsForTheOthersButNotForLong) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto ranks = notices(store, 2, std::chrono::seconds(5));
  const auto start = Clock::now();
  ranks[0].reset();
  const auto took = Clock::now() - start;
  EXPECT_GT(took, std::chrono::milliseconds(500));
  EXPECT_LT(took, std::chrono::seconds(15));
  EXPECT_FALSE(ranks[1]->failed());
}

TEST(FailureNotice, TheLossOfTheStoreIsAFailure) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  auto server = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  options.isServer = false;
  options.port = server->getPort();
  const auto client = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  const auto notice = FailureNotice::over_store(client, 1, 2, kTimeout);
  EXPECT_FALSE(notice->failed());
  server.reset();
  wait_for_failure(*notice);
  EXPECT_EQ(notice->text(), "lost the store that rank 0 keeps: rank 0 has ended");
  const auto start = Clock::now();
  notice->publish("in vain");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
}

// Connections to it come late, as on a machine that is busy.
class LateStore final : public c10d::HashStore {
 public:
  explicit LateStore(std::chrono::milliseconds delay) : delay_(delay) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    std::this_thread::sleep_for(delay_);
    return c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(this);
  }

 private:
  std::chrono::milliseconds delay_;
};

TEST(FailureNotice, AStoreMayComeAsLateAsTheTimeOutAllows) {
  const auto store = c10::make_intrusive<LateStore>(std::chrono::milliseconds(4500));
  const auto notice = FailureNotice::over_store(store, 0, 1, kTimeout);
  EXPECT_FALSE(notice->failed());
}

// Connections to it come once the test lets them.
class HeldStore final : public c10d::HashStore {
 public:
  void let_go() { let_go_.set_value(); }

  c10::intrusive_ptr<c10d::Store> clone() override {
    let_go_.get_future().wait();
    return c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(this);
  }

 private:
  std::promise<void> let_go_;
};

TEST(FailureNotice, AStoreThatComesLaterIsATimeOut) {
  const auto store = c10::make_intrusive<HeldStore>();
  const Error error =
      error_of([&] { FailureNotice::over_store(store, 0, 1, std::chrono::milliseconds(50)); });
  EXPECT_EQ(error.code(), Code::kTimeout);
  store->let_go();
  while (store.use_count() > 1) {  // by the thread left behind
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// What a rank goes through on its way out: a roll call, the news, leaving.
TEST(FailureNotice, AStoreThatDoesNotAnswerHoldsARankUpOnce) {
  auto took = Clock::duration::max();
  for (int i = 0; i < 5 && took > std::chrono::seconds(4);
       ++i) {  // a busy machine holds it up, too
    const auto store = c10::make_intrusive<SilentStore>();
    auto ranks = notices(store, 2);
    store->stop();
    const auto start = Clock::now();
    const auto answers = ranks[1]->roll_call().call({0, 1});
    ranks[1]->publish("rank 0 is late");
    ranks.pop_back();
    took = Clock::now() - start;
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].rank, 0);
    EXPECT_FALSE(answers[0].answered);
    store->go_on();
    leave(ranks);
  }
  EXPECT_LT(took, std::chrono::seconds(4));
}

TEST(FailureNotice, AStoreThatGoesOnIsToldWhatHappenedMeanwhile) {
  const auto store = c10::make_intrusive<SilentStore>();
  auto ranks = notices(store, 3);
  store->stop();
  ranks[2]->publish("rank 2 is out of memory");  // gives up waiting for the store
  EXPECT_EQ(ranks[2]->text(), "rank 2 is out of memory");
  EXPECT_FALSE(ranks[1]->failed());
  store->go_on();
  for (const auto& rank : ranks) {
    wait_for_failure(*rank);
    EXPECT_EQ(rank->text(), "rank 2 is out of memory");
  }
  leave(ranks);
}

// It takes a moment to see that the store answers again, and that it was the rank that stood still.
TEST(FailureNotice, ARankThatStoodStillIsHeardAndHearsTheOthersAgain) {
  size_t heard = 0;
  for (int i = 0; i < 5 && heard < 3; ++i) {  // a busy machine holds it up once more
    const auto store = c10::make_intrusive<SilentStore>();
    auto ranks = notices(store, 3);
    store->stop();
    EXPECT_EQ(ranks[0]->roll_call().call({0, 1, 2}).size(), 1U);  // in vain
    store->go_on();
    ranks[0]->of({0, 1})->publish("rank 0 was late");
    wait_for_failure(*ranks[1]);
    EXPECT_EQ(ranks[1]->text(), "rank 0 was late");
    heard = ranks[0]->roll_call().call({0, 1, 2}).size();
    leave(ranks);
  }
  EXPECT_EQ(heard, 3U);
}

TEST(FailureNotice, RankZeroDoesNotWaitWhereTheLauncherKeepsTheStore) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto rank0 = FailureNotice::over_store(store, 0, 2, kTimeout, StoreKeeper::kLauncher);
  const auto start = Clock::now();
  rank0.reset();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(12));  // else 15 s of waiting
}

TEST(FailureNotice, RankZeroEndsItsWaitOnceARankHasFailed) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto ranks = notices(store, 3);  // of which the last never leaves
  std::thread fails([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ranks[1]->of({1, 2})->publish("rank 2 has ended");
    ranks[1].reset();
  });
  const auto start = Clock::now();
  ranks[0].reset();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(12));  // else 15 s of waiting
  fails.join();
}

// As one does that stands still for some seconds on a machine that is busy.
TEST(FailureNotice, TheRankThatKeepsTheStoreWaitsForOneThatLeavesLate) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto ranks = notices(store, 2);
  std::atomic<bool> has_left{false};
  std::thread late([&, rank = std::move(ranks[1])]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(3500));
    has_left = true;
    rank.reset();
  });
  ranks[0].reset();
  EXPECT_TRUE(has_left);
  late.join();
}

TEST(FailureNotice, ALocalOneRemembersTheFirstText) {
  const auto notice = FailureNotice::local();
  EXPECT_FALSE(notice->failed());
  notice->publish("first");
  notice->publish("second");
  EXPECT_TRUE(notice->failed());
  EXPECT_EQ(notice->text(), "first");
}

using Answers = std::vector<RollCall::Answer>;

// What a call with new ranks gets once so many of them answer in time: a busy machine may hold one
// up.
Answers answers_of(size_t expected, const std::function<Answers()>& call) {
  Answers answers;
  size_t answered = 0;
  for (int i = 0; i < 5 && answered < expected; ++i) {
    answers = call();
    answered = std::count_if(answers.begin(), answers.end(),
                             [](const RollCall::Answer& answer) { return answer.answered; });
  }
  return answers;
}

TEST(RollCall, RanksAnswerWithWhatTheyWaitFor) {
  const auto answers = answers_of(3, [] {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    auto ranks = notices(store, 3);
    ranks[1]->roll_call().set_waiting_for(1, "barrier of group control");
    auto all = ranks[0]->roll_call().call({0, 1, 2});
    ranks[2]->publish("it is over");  // the watchers are still there
    for (const auto& rank : ranks) {
      wait_for_failure(*rank);
      EXPECT_EQ(rank->text(), "it is over");
    }
    leave(ranks);
    return all;
  });
  ASSERT_EQ(answers.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(answers[rank].rank, rank);
    EXPECT_TRUE(answers[rank].answered);
    EXPECT_EQ(answers[rank].waiting_for, rank == 1 ? "barrier of group control" : "");
  }
}

TEST(RollCall, EachCallIsAnsweredAnew) {
  const std::vector<std::string> waits = {"barrier of group control", "all_gather of group dp"};
  const auto answers = answers_of(2, [&] {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    auto ranks = notices(store, 2);
    Answers all;
    for (const std::string& what : waits) {
      ranks[1]->roll_call().set_waiting_for(1, what);
      all.push_back(ranks[0]->roll_call().call({1}).at(0));
      ranks[0]->of({0})->publish("a failure that is not rank 1's");
    }
    leave(ranks);
    return all;
  });
  for (size_t i = 0; i < waits.size(); ++i) {
    EXPECT_TRUE(answers[i].answered);
    EXPECT_EQ(answers[i].waiting_for, waits[i]);
  }
}

TEST(RollCall, ARankThatIsNotThereDoesNotAnswer) {
  const auto answers = answers_of(1, [] {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const auto only = FailureNotice::over_store(store, 1, 1, kTimeout);
    return only->roll_call().call({0, 1});
  });
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_FALSE(answers[0].answered);
  EXPECT_TRUE(answers[1].answered);
}

TEST(RollCall, ThreadsAnswerForThemselves) {
  const auto notice = FailureNotice::local();
  notice->roll_call().set_waiting_for(1, "barrier of group control");
  const auto answers = notice->roll_call().call({0, 1});
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].waiting_for, "");
  EXPECT_EQ(answers[1].waiting_for, "barrier of group control");
}

}  // namespace
}  // namespace fsdp2
