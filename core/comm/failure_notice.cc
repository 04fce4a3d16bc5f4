#include "core/comm/failure_notice.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

namespace fsdp2 {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::hours kLong{24};  // one wait of a watcher; longer overflows poll(2)
constexpr std::chrono::milliseconds kPatience{2000};  // with a store that may not answer

class LocalNotice final : public FailureNotice {
 public:
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
  std::atomic<bool> failed_{false};
};

// Runs `work` in a thread of its own and waits for it for a limited time. A store whose host is
// stopped does not answer and cannot be interrupted; what still hangs then is left behind, so
// `work` owns all that it touches.
void run_patiently(std::function<void()> work) noexcept {
  try {
    std::packaged_task<void()> task(std::move(work));
    auto done = task.get_future();
    std::thread(std::move(task)).detach();
    if (done.wait_for(kPatience) == std::future_status::ready) {
      done.get();
    }
  } catch (...) {
    // Nobody can be told over a store that is lost.
  }
}

// Keys: "failure" holds the first text, "notice/<rank>" releases that rank's watcher, "left" counts
// the watchers that need the store no more.
class StoreNotice final : public FailureNotice {
 public:
  StoreNotice(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size)
      : store_(std::move(store)), rank_(rank), world_size_(world_size) {
    std::packaged_task<void()> watch(
        [state = state_, store = store_->clone(), rank] { state->watch(*store, rank); });
    watched_ = watch.get_future();
    watcher_ = std::thread(std::move(watch));
  }

  ~StoreNotice() override {
    state_->leaving = true;
    if (watched_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      run_patiently([store = store_, rank = rank_] { store->set(notice_key(rank), "leaving"); });
    }
    if (watched_.wait_for(kPatience) == std::future_status::ready) {
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
    run_patiently([state = state_, store = store_, size = world_size_, text] {
      state->notice.publish(store->compareSet("failure", std::string(), text));
      for (int rank = 0; rank < size; ++rank) {
        store->set(notice_key(rank), "failed");
      }
    });
    state_->notice.publish(text);  // should the store not have answered
  }

 private:
  // What the watcher shares with the notice, which it may outlive.
  struct State {
    LocalNotice notice;
    std::atomic<bool> leaving{false};

    void watch(c10d::Store& store, int rank) {
      try {
        wait_for_notice(store, rank);
        if (!leaving) {
          notice.publish(store.get_to_str("failure"));
        }
        store.add("left", 1);
      } catch (...) {
        if (!leaving) {
          notice.publish("lost the store that rank 0 keeps: rank 0 has ended");
        }
      }
    }

    static void wait_for_notice(c10d::Store& store, int rank) {
      for (;;) {
        const auto start = Clock::now();
        try {
          store.wait({notice_key(rank)}, kLong);
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

  // Rank 0 keeps the store in most jobs: were it to go first, the others would take a normal end
  // for a failure.
  void wait_for_the_others() const noexcept {
    const auto deadline = Clock::now() + kPatience;
    try {
      while (store_->add("left", 0) < world_size_ && Clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    } catch (...) {
      // The store is lost already, so nobody is waiting.
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int world_size_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::future<void> watched_;
  std::thread watcher_;
};

}  // namespace

std::shared_ptr<FailureNotice> FailureNotice::over_store(c10::intrusive_ptr<c10d::Store> store,
                                                         int rank, int world_size) {
  return std::make_shared<StoreNotice>(std::move(store), rank, world_size);
}

std::shared_ptr<FailureNotice> FailureNotice::local() { return std::make_shared<LocalNotice>(); }

}  // namespace fsdp2
