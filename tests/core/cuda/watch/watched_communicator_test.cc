// Collectives that do not end, and calls that hang, over a communicator that stands in for NCCL's.
#include "core/cuda/watch/watched_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace fsdp2::cuda {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kLong{60000};  // which no test waits for
constexpr milliseconds kShort{200};

// What is known of the communicator that the other side has.
class Fake {
 public:
  void set_state(Communicator::State state) {
    const std::lock_guard<std::mutex> lock(mutex_);
    state_ = std::move(state);
  }
  // It settles when it has been looked at so often.
  void settle_after(int looks) {
    const std::lock_guard<std::mutex> lock(mutex_);
    unsettled_looks_ = looks;
  }
  Communicator::State state() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++looks_;
    return unsettled_looks_-- > 0 ? Communicator::State{/*has_settled=*/false, ""} : state_;
  }
  int looks() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return looks_;
  }
  void end() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++ends_;
    }
    ended_.notify_all();
  }
  int ends() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ends_;
  }
  // As a call that the device has no room for: returns when the communicator is ended.
  void hang() {
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait(lock, [this] { return ends_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  Communicator::State state_;
  int unsettled_looks_ = 0;
  int looks_ = 0;
  int ends_ = 0;
};

class FakeCommunicator final : public Communicator {
 public:
  explicit FakeCommunicator(std::shared_ptr<Fake> fake) : fake_(std::move(fake)) {}
  State state() override { return fake_->state(); }
  void end() noexcept override { fake_->end(); }

 private:
  std::shared_ptr<Fake> fake_;
};

class FakeMilestone final : public Milestone {
 public:
  bool is_past() const override { return is_past_; }
  void pass() { is_past_ = true; }

 private:
  std::atomic<bool> is_past_{false};
};

// On a device that is full, and answers when the communicator is ended.
class FullDevicesMilestone final : public Milestone {
 public:
  explicit FullDevicesMilestone(std::shared_ptr<Fake> fake) : fake_(std::move(fake)) {}
  bool is_past() const override {
    is_asked_ = true;
    fake_->hang();
    return true;
  }
  bool is_asked() const { return is_asked_; }

 private:
  const std::shared_ptr<Fake> fake_;
  mutable std::atomic<bool> is_asked_{false};
};

class Watched : public ::testing::Test {
 protected:
  std::unique_ptr<WatchedCommunicator> watched(milliseconds timeout,
                                               milliseconds longest_call = kShort) {
    return std::make_unique<WatchedCommunicator>(std::make_unique<FakeCommunicator>(fake_), timeout,
                                                 longest_call);
  }

  static std::string text_of(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& each) {
      return each.what();
    }
  }

  // What an ask throws; empty: nothing.
  static std::string thrown_by(
      WatchedCommunicator& communicator, const std::function<void()>& call = [] {}) {
    try {
      communicator.ask(call);
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  // Why it was ended, within half a minute.
  static std::string end_of(const WatchedCommunicator& communicator) {
    for (int i = 0; i < 3000 && communicator.error() == nullptr; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    return communicator.error() == nullptr ? "" : text_of(communicator.error());
  }

  const std::shared_ptr<Fake> fake_ = std::make_shared<Fake>();
};

TEST_F(Watched, WhatEndsInTimeEndsNothing) {
  const milliseconds time{7000};  // a busy machine may keep this thread for a while
  const auto communicator = watched(time);
  const auto end = std::make_shared<FakeMilestone>();
  EXPECT_EQ(thrown_by(*communicator), "");
  communicator->expect(end);
  end->pass();
  std::this_thread::sleep_for(time + kShort);
  EXPECT_EQ(communicator->error(), nullptr);
  EXPECT_EQ(fake_->ends(), 0);
}

TEST_F(Watched, WhatIsLateEndsTheCommunicator) {
  auto communicator = watched(kShort);
  std::string thrown = thrown_by(*communicator);
  for (int i = 0; i < 5 && !thrown.empty(); ++i) {  // a busy machine makes the ask itself late
    communicator = watched(kShort);
    thrown = thrown_by(*communicator);
  }
  EXPECT_EQ(thrown, "");
  communicator->expect(std::make_shared<FakeMilestone>());
  EXPECT_EQ(end_of(*communicator),
            "not done within 200 ms: a rank is late, has stopped or is elsewhere");
  EXPECT_THAT(thrown_by(*communicator), HasSubstr("not done within 200 ms"));
}

TEST_F(Watched, AnAskWaitsUntilWhatItAskedForIsDone) {
  const auto communicator = watched(kLong);
  fake_->set_state({/*has_settled=*/false, ""});
  std::atomic<bool> is_done{false};
  std::thread background([&] {
    std::this_thread::sleep_for(milliseconds(50));
    is_done = true;
    fake_->set_state({});
  });
  EXPECT_EQ(thrown_by(*communicator), "");
  EXPECT_TRUE(is_done);
  background.join();
}

// How often this thread has slept; that it was interrupted is not counted.
int64_t sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

// Each collective of a step is such an ask. It is done at the second look: on a busy machine, who
// lets others run before a third one comes back late, and sleeps.
TEST_F(Watched, AnAskThatIsSoonDoneTakesNoSleep) {
  const auto communicator = watched(kLong);
  int64_t fewest = 1;
  for (int i = 0; i < 20; ++i) {
    fake_->settle_after(1);
    const int64_t before = sleeps();
    EXPECT_EQ(thrown_by(*communicator), "");
    fewest = std::min(fewest, sleeps() - before);
  }
  EXPECT_EQ(fewest, 0);
}

TEST_F(Watched, NobodyLooksWhileACallIsMade) {
  const auto communicator = watched(kLong);
  int looks = -1;
  EXPECT_EQ(thrown_by(*communicator,
                      [&] {
                        const int before = fake_->looks();
                        std::this_thread::sleep_for(milliseconds(250));  // the watcher looks twice
                        looks = fake_->looks() - before;
                      }),
            "");
  EXPECT_EQ(looks, 0);
}

TEST_F(Watched, AnAskThatIsNeverDoneIsLate) {
  auto communicator = watched(kShort);
  fake_->set_state({/*has_settled=*/false, ""});
  EXPECT_THAT(thrown_by(*communicator), HasSubstr("not done within 200 ms"));
  communicator.reset();  // the watcher, which ends it, has said why before that
  EXPECT_EQ(fake_->ends(), 1);
}

TEST_F(Watched, ACallThatIsRefusedEndsTheCommunicator) {
  const auto communicator = watched(kLong);
  const auto refuse = [] { throw std::runtime_error("invalid usage"); };
  EXPECT_EQ(thrown_by(*communicator, refuse), "invalid usage");
  EXPECT_EQ(thrown_by(*communicator), "invalid usage");
  EXPECT_EQ(fake_->ends(), 1);
}

TEST_F(Watched, AnErrorOfItsOwnEndsTheCommunicator) {
  const auto communicator = watched(kLong);
  fake_->set_state({/*has_settled=*/true, "remote process exited"});
  EXPECT_EQ(end_of(*communicator), "remote process exited");
}

TEST_F(Watched, AnAskThatMeetsAnErrorThrowsIt) {
  const auto communicator = watched(kLong);
  const auto fail = [&] { fake_->set_state({/*has_settled=*/true, "remote process exited"}); };
  EXPECT_EQ(thrown_by(*communicator, fail), "remote process exited");
}

TEST_F(Watched, AnAbortDoesNotWaitForACallThatHangs) {
  const auto communicator = watched(kLong);
  std::string thrown;
  std::thread caller([&] { thrown = thrown_by(*communicator, [&] { fake_->hang(); }); });
  std::this_thread::sleep_for(milliseconds(50));
  const auto start = std::chrono::steady_clock::now();
  communicator->abort("given up");
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong / 2);
  caller.join();
  EXPECT_EQ(thrown, "given up");
  EXPECT_EQ(fake_->ends(), 1);
}

TEST_F(Watched, AnAbortDoesNotWaitForADeviceThatIsFull) {
  const auto communicator = watched(kLong);
  const auto end = std::make_shared<FullDevicesMilestone>(fake_);
  communicator->expect(end);
  while (!end->is_asked()) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(communicator->error(), nullptr);
  communicator->abort("given up");
  EXPECT_EQ(fake_->ends(), 1);
  EXPECT_EQ(text_of(communicator->error()), "given up");
}

TEST_F(Watched, ACallThatHangsEndsWhenItsTimeIsOver) {
  const auto communicator = watched(kShort);
  EXPECT_THAT(thrown_by(*communicator, [&] { fake_->hang(); }),
              HasSubstr("not done within 200 ms"));
}

// Nothing may be freed beneath a call.
TEST_F(Watched, AnAbortComesAfterACallThatReturns) {
  const auto communicator = watched(kLong, kLong);
  std::atomic<int> ends_in_call{-1};
  std::atomic<bool> is_calling{false};
  std::thread caller([&] {
    thrown_by(*communicator, [&] {
      is_calling = true;
      std::this_thread::sleep_for(milliseconds(100));
      ends_in_call = fake_->ends();
    });
  });
  while (!is_calling) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  communicator->abort("given up");
  EXPECT_EQ(ends_in_call, 0);
  EXPECT_EQ(fake_->ends(), 1);
  caller.join();
}

TEST_F(Watched, TheFailureOfAnotherRankEndsWhatIsUnderWay) {
  const auto communicator = watched(kLong);
  std::atomic<bool> has_failed{false};
  communicator->give_up_when([&] { return std::string(has_failed ? "rank 3: no memory" : ""); });
  EXPECT_EQ(thrown_by(*communicator), "");
  communicator->expect(std::make_shared<FakeMilestone>());
  EXPECT_EQ(communicator->error(), nullptr);
  has_failed = true;
  EXPECT_EQ(end_of(*communicator), "rank 3: no memory");
}

TEST_F(Watched, TheFirstReasonStaysAndTheEndComesOnce) {
  {
    const auto communicator = watched(kLong);
    communicator->abort("first");
    communicator->abort("second");
    EXPECT_EQ(text_of(communicator->error()), "first");
  }
  EXPECT_EQ(fake_->ends(), 1);
}

TEST_F(Watched, ItEndsWithItsOwner) {
  watched(kLong);
  EXPECT_EQ(fake_->ends(), 1);
}

}  // namespace
}  // namespace fsdp2::cuda
