// A store that does not answer keeps nobody waiting for longer than the caller allows.
#include "core/comm/meet/patience.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "tests/core/comm/meet/silent_store.h"
#include "tests/support/errors.h"

namespace fsdp2 {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kPatience{1000};
constexpr seconds kLong{60};

TEST(Patience, IsLostOnceAndThenEveryCallFailsAtOnce) {
  constexpr seconds kLongPatience{8};  // a machine that is busy may hold up the call that answers
  const auto silent = c10::make_intrusive<SilentStore>();
  const auto store = patient(kLongPatience, silent);
  EXPECT_EQ(store->add("number", 1), 1);
  silent->stop();
  const auto start = Clock::now();
  EXPECT_EQ(error_of([&] { store->add("number", 1); }).code(), Code::kTimeout);
  EXPECT_GE(Clock::now() - start, kLongPatience);
  const auto lost = Clock::now();
  EXPECT_EQ(error_of([&] { store->check({"number"}); }).code(), Code::kTimeout);
  EXPECT_EQ(error_of([&] { store->get("number"); }).code(), Code::kTimeout);
  EXPECT_LT(Clock::now() - lost, kLongPatience);
  silent->go_on();
}

TEST(Patience, OfAWaitForAKeyKeepsNoOtherCallWaiting) {
  const auto store = patient(kLong, c10::make_intrusive<SilentStore>());
  std::thread waiting([&] { EXPECT_EQ(store->get_to_str("key"), "value"); });
  const auto start = Clock::now();
  std::this_thread::sleep_for(milliseconds(50));
  store->set("key", "value");
  waiting.join();
  EXPECT_LT(Clock::now() - start, kLong / 2);
}

TEST(Patience, EndsWithTheTimeThatAWaitIsGiven) {
  const auto store = patient(kLong, c10::make_intrusive<SilentStore>());
  const auto start = Clock::now();
  EXPECT_EQ(error_of([&] { store->wait({"key"}, kPatience); }).code(), Code::kTimeout);
  EXPECT_LT(Clock::now() - start, kLong / 2);
}

// The store's own time-out is what was left of the time to join when it was opened.
TEST(Patience, IsTheTimeOutOfWaitsThatAreGivenNone) {
  const auto inner = c10::make_intrusive<SilentStore>();
  inner->setTimeout(milliseconds(1));
  const auto store = patient(seconds(20), inner);
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(100));
    store->set("key", "value");
  });
  EXPECT_EQ(store->get_to_str("key"), "value");
  other.join();
}

TEST(Patience, WithWorkEndsWhenALookThrows) {
  std::promise<void> over;
  const auto work = [is_over = over.get_future().share()] { is_over.wait_for(kLong); };
  const auto start = Clock::now();
  const auto look = [] { fail(Code::kPeerFailed, "a rank failed"); };
  EXPECT_EQ(error_of([&] { run_until(start + kLong, work, look); }).code(), Code::kPeerFailed);
  EXPECT_LT(Clock::now() - start, kLong / 2);
  over.set_value();
}

TEST(Patience, RunsWorkOnAThreadThatTakesNoSignals) {
  bool is_blocked = false;
  EXPECT_TRUE(run_until(Clock::now() + kLong, [&] {
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    is_blocked = ::sigismember(&mask, SIGTERM) == 1 && ::sigismember(&mask, SIGPIPE) == 1;
  }));
  EXPECT_TRUE(is_blocked);
}

// The process may end once the work is over, and what is destroyed on another thread then may not.
TEST(Patience, ReturnsOnceWhatTheWorkHoldsIsGone) {
  struct Held {
    ~Held() {
      std::this_thread::sleep_for(milliseconds(200));
      *is_gone = true;
    }
    std::shared_ptr<std::atomic<bool>> is_gone = std::make_shared<std::atomic<bool>>(false);
  };
  auto held = std::make_shared<Held>();
  const auto is_gone = held->is_gone;
  auto work = [own = std::move(held)] { EXPECT_NE(own, nullptr); };
  EXPECT_TRUE(run_until(Clock::now() + kLong, std::move(work)));
  EXPECT_TRUE(*is_gone);
}

}  // namespace
}  // namespace fsdp2
