#include "core/comm/failure/failure_notice.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/comm/failure/roll_call.h"
#include "core/comm/meet/patience.h"

namespace fsdp2 {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::hours kLong{24};  // one wait of a watcher; longer overflows poll(2)
constexpr std::chrono::milliseconds kPatience{2000};  // with a store that may not answer
constexpr std::chrono::milliseconds kConnect{4000};   // for the watcher's connection to the store
constexpr std::chrono::milliseconds kAnswer{1000};    // for a rank to answer a roll call

// The ranks are threads that share it, or there is one alone.
class LocalNotice final : public FailureNotice, public RollCall {
 public:
  void set_waiting_for(int rank, const std::string& what) noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_for_[rank] = what;
  }

  std::vector<Answer> call(const std::vector<int>& ranks) noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Answer> answers;
    for (const int rank : ranks) {
      answers.push_back({rank, true, waiting_for_[rank]});
    }
    return answers;
  }

  bool failed() const override { return failed_; }

  std::string text() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }

  void publish(const std::string& text) noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failed_) {
      text_ = text;
      failed_ = true;
    }
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
  std::map<int, std::string> waiting_for_;
  std::atomic<bool> failed_{false};
};

// Keys: "failure" holds the first text; a rank's watcher waits for "roll/<rank>", answers it in
// "present/<rank>", then waits for "notice/<rank>"; "left" counts the watchers that need the store
// no more.
//
// A store whose host is stopped does not answer. That costs kPatience once; then the notice does
// without it.
class StoreNotice final : public FailureNotice, public RollCall {
 public:
  StoreNotice(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, StoreKeeper keeper)
      : store_(patient(kPatience, store)), rank_(rank), world_size_(world_size) {
    state_->keeper = keeper;
    std::packaged_task<void()> watch([state = state_,
                                      store = clone_until(Clock::now() + kConnect, store),
                                      rank] { state->watch(*store, rank); });
    watched_ = watch.get_future();
    watcher_ = std::thread(std::move(watch));
  }

  ~StoreNotice() override {
    state_->leaving = true;
    const auto ended_within = [this](std::chrono::milliseconds time) {
      return watched_.wait_for(time) == std::future_status::ready;
    };
    const bool told = attempt([&] {
      if (!ended_within(std::chrono::milliseconds(0))) {
        release(*store_, rank_, "leaving");
      }
    });
    if (ended_within(told ? kPatience : std::chrono::milliseconds(0))) {
      watcher_.join();
    } else {
      watcher_.detach();
    }
    if (rank_ == 0) {
      wait_for_the_others();
    }
  }

  bool failed() const override { return state_->notice.failed(); }
  std::string text() const override { return state_->notice.text(); }

  void publish(const std::string& text) noexcept override {
    if (failed()) {
      return;
    }
    attempt([&] {
      state_->notice.publish(store_->compareSet("failure", std::string(), text));
      for (int rank = 0; rank < world_size_; ++rank) {
        release(*store_, rank, "failed");
      }
    });
    state_->notice.publish(text);  // should the store not have answered
  }

  void set_waiting_for(int rank, const std::string& what) noexcept override {
    state_->notice.set_waiting_for(rank, what);
  }

  std::vector<Answer> call(const std::vector<int>& ranks) noexcept override {
    std::vector<Answer> answers;
    if (attempt([&] { answers = collect(*store_, ranks); })) {
      absent_ = static_cast<int>(std::count_if(
          answers.begin(), answers.end(), [](const Answer& answer) { return !answer.answered; }));
      return answers;
    }
    return state_->keeper == StoreKeeper::kRankZero ? std::vector<Answer>{{0, false, ""}}
                                                    : std::vector<Answer>();
  }

 private:
  // Whether the store could be had for it; nobody can be told over one that is lost.
  template <typename Work>
  static bool attempt(const Work& work) noexcept {
    try {
      work();
      return true;
    } catch (...) {
      return false;
    }
  }

  static std::vector<Answer> collect(c10d::Store& store, const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      store.set(roll_key(rank), "called");
    }
    const auto deadline = Clock::now() + kAnswer;
    const auto is_missing = [&](int rank) { return !store.check({present_key(rank)}); };
    while (std::any_of(ranks.begin(), ranks.end(), is_missing) && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::vector<Answer> answers;
    for (const int rank : ranks) {
      const bool answered = !is_missing(rank);
      answers.push_back({rank, answered, answered ? store.get_to_str(present_key(rank)) : ""});
    }
    return answers;
  }

  static void release(c10d::Store& store, int rank, const char* why) {
    store.set(notice_key(rank), why);
    store.set(roll_key(rank), why);
  }

  // What the watcher shares with the notice, which it may outlive.
  struct State {
    LocalNotice notice;
    std::atomic<bool> leaving{false};
    StoreKeeper keeper = StoreKeeper::kRankZero;

    void watch(c10d::Store& store, int rank) {
      try {
        wait_for(store, roll_key(rank));
        store.set(present_key(rank), notice.call({rank}).front().waiting_for);
        wait_for(store, notice_key(rank));
        if (!leaving) {
          notice.publish(store.get_to_str("failure"));
        }
        store.add("left", 1);
      } catch (...) {
        if (!leaving) {
          notice.publish(keeper == StoreKeeper::kRankZero
                             ? "lost the store that rank 0 keeps: rank 0 has ended"
                             : "lost the store that the launcher keeps: the launcher has ended");
        }
      }
    }

    static void wait_for(c10d::Store& store, const std::string& key) {
      for (;;) {
        const auto start = Clock::now();
        try {
          store.wait({key}, kLong);
          return;
        } catch (...) {
          if (Clock::now() - start < kLong) {
            throw;
          }
        }
      }
    }
  };

  static std::string notice_key(int rank) { return "notice/" + std::to_string(rank); }
  static std::string roll_key(int rank) { return "roll/" + std::to_string(rank); }
  static std::string present_key(int rank) { return "present/" + std::to_string(rank); }

  // Rank 0 keeps the store in most jobs: were it to go first, the others would take a normal end
  // for a failure.
  void wait_for_the_others() const noexcept {
    const auto deadline = Clock::now() + kPatience;
    attempt([&] {
      while (store_->add("left", 0) < world_size_ - absent_ && Clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
  }

  c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int world_size_;
  std::atomic<int> absent_{0};  // ranks that did not answer the roll call
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::future<void> watched_;
  std::thread watcher_;
};

}  // namespace

std::shared_ptr<FailureNotice> FailureNotice::over_store(c10::intrusive_ptr<c10d::Store> store,
                                                         int rank, int world_size,
                                                         StoreKeeper keeper) {
  return std::make_shared<StoreNotice>(std::move(store), rank, world_size, keeper);
}

RollCall& roll_call_of(FailureNotice& notice) { return dynamic_cast<RollCall&>(notice); }

std::shared_ptr<FailureNotice> FailureNotice::local() { return std::make_shared<LocalNotice>(); }

}  // namespace fsdp2
