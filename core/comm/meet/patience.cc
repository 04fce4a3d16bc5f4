#include "core/comm/meet/patience.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/quiet_thread.h"
#include "core/comm/meet/no_name_server.h"

namespace fsdp2 {

namespace {

using Clock = std::chrono::steady_clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using Keys = std::vector<std::string>;
using Value = std::vector<uint8_t>;
using std::chrono::milliseconds;

constexpr milliseconds kShortest{1000};    // for a call after the deadline of a stretch of work
constexpr milliseconds kLongestPause{10};  // between two looks for a key
constexpr milliseconds kLook{50};          // from one look while work runs to the next

constexpr char kSilent[] =
    "the store that the ranks meet at does not answer: the process that keeps it (rank 0, or the "
    "launcher) is stopped, or its machine cannot be reached";

// Makes calls, one after the other, on a thread of its own. If one never returns, the thread is
// left behind with it.
class Caller {
 public:
  Caller() : thread_(start_quiet_thread([desk = desk_] { desk->work(); })) {}
  ~Caller() {
    desk_->close();
    if (desk_->is_stuck()) {
      thread_.detach();
    } else {
      thread_.join();
    }
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Rethrows what the call throws. False if it has not returned by the deadline, or an earlier one
  // has not by its own.
  bool call(Deadline deadline, std::function<void()> call) {
    std::packaged_task<void()> task(std::move(call));
    std::future<void> done = task.get_future();
    if (!desk_->take(std::move(task))) {
      return false;
    }
    if (done.wait_until(deadline) != std::future_status::ready) {
      desk_->give_up();
      return false;
    }
    done.get();
    return true;
  }

 private:
  // What the thread shares with its owner, which it may outlive.
  class Desk {
   public:
    void work() {
      std::unique_lock<std::mutex> lock(mutex_);
      for (;;) {
        changed_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
        if (closed_) {
          return;
        }
        std::packaged_task<void()> task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task();
        lock.lock();
      }
    }
    bool take(std::packaged_task<void()> task) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!stuck_) {
        tasks_.push_back(std::move(task));
        changed_.notify_one();
      }
      return !stuck_;
    }
    void give_up() {
      const std::lock_guard<std::mutex> lock(mutex_);
      stuck_ = true;
    }
    bool is_stuck() {
      const std::lock_guard<std::mutex> lock(mutex_);
      return stuck_;
    }
    void close() {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
      changed_.notify_one();
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::packaged_task<void()>> tasks_;
    bool stuck_ = false;
    bool closed_ = false;
  };

  std::shared_ptr<Desk> desk_ = std::make_shared<Desk>();
  std::thread thread_;
};

class PatientStore final : public c10d::Store {
 public:
  using NextDeadline = std::function<Deadline()>;

  // timeout: of waits that are given none. The store's own is what was left when it was opened.
  PatientStore(NextDeadline next_deadline, milliseconds timeout, StorePtr store)
      : Store(timeout), next_deadline_(std::move(next_deadline)), store_(std::move(store)) {}

  StorePtr clone() override {
    return c10::make_intrusive<PatientStore>(next_deadline_, getTimeout(),
                                             ask<StorePtr>([](Store& store) {
                                               const NoNameServer files_alone;
                                               return store.clone();
                                             }));
  }

  void set(const std::string& key, const Value& value) override {
    tell([=](Store& store) { store.set(key, value); });
  }
  Value compareSet(const std::string& key, const Value& expected, const Value& wanted) override {
    return ask<Value>([=](Store& store) { return store.compareSet(key, expected, wanted); });
  }
  Value get(const std::string& key) override {
    wait({key});
    return ask<Value>([=](Store& store) { return store.get(key); });
  }
  int64_t add(const std::string& key, int64_t value) override {
    return ask<int64_t>([=](Store& store) { return store.add(key, value); });
  }
  bool deleteKey(const std::string& key) override {
    return ask<bool>([=](Store& store) { return store.deleteKey(key); });
  }
  bool check(const Keys& keys) override {
    return ask<bool>([=](Store& store) { return store.check(keys); });
  }
  int64_t getNumKeys() override {
    return ask<int64_t>([](Store& store) { return store.getNumKeys(); });
  }
  void wait(const Keys& keys) override { wait(keys, getTimeout()); }
  void wait(const Keys& keys, const milliseconds& timeout) override {
    const Deadline deadline = Clock::now() + timeout;
    for (milliseconds pause{1}; !check(keys); pause = std::min(2 * pause, kLongestPause)) {
      FSDP2_CHECK(Clock::now() < deadline, Code::kTimeout,
                  "waited {:.1f} s for {} in the store that the ranks meet at: a rank is late, or "
                  "has ended",
                  std::chrono::duration<double>(timeout).count(), fmt::join(keys, ", "));
      std::this_thread::sleep_for(pause);
    }
  }
  bool hasExtendedApi() const override { return store_->hasExtendedApi(); }
  void append(const std::string& key, const Value& value) override {
    tell([=](Store& store) { store.append(key, value); });
  }
  std::vector<Value> multiGet(const Keys& keys) override {
    wait(keys);
    return ask<std::vector<Value>>([=](Store& store) { return store.multiGet(keys); });
  }
  void multiSet(const Keys& keys, const std::vector<Value>& values) override {
    tell([=](Store& store) { store.multiSet(keys, values); });
  }

 private:
  template <typename Answer>
  Answer ask(std::function<Answer(Store& store)> question) {
    // The caller's thread may outlive this view, and the question its asker.
    const auto answer = std::make_shared<std::optional<Answer>>();
    const bool answered =
        caller_.call(next_deadline_(), [answer, store = store_, question = std::move(question)] {
          answer->emplace(question(*store));
        });
    FSDP2_CHECK(answered, Code::kTimeout, kSilent);
    return std::move(**answer);
  }

  void tell(std::function<void(Store& store)> news) {
    ask<bool>([news = std::move(news)](Store& store) {
      news(store);
      return true;
    });
  }

  NextDeadline next_deadline_;
  StorePtr store_;
  Caller caller_;
};

}  // namespace

bool run_until(Deadline deadline, std::function<void()> work, const std::function<void()>& look) {
  // What the work holds goes on its thread, and before its end is known: the caller may end the
  // process then.
  const auto task =
      std::make_shared<std::packaged_task<void()>>([work = std::move(work)]() mutable {
        const auto own = std::exchange(work, nullptr);
        own();
      });
  std::future<void> done = task->get_future();
  start_quiet_thread([task] { (*task)(); }).detach();
  while (done.wait_until(look ? std::min(deadline, Clock::now() + kLook) : deadline) !=
         std::future_status::ready) {
    if (Clock::now() >= deadline) {
      return false;
    }
    if (look) {
      look();
    }
  }
  done.get();
  return true;
}

StorePtr clone_until(Deadline deadline, const StorePtr& store) {
  const auto copy = answer_until(deadline, [store] {
    const NoNameServer files_alone;
    return store->clone();
  });
  FSDP2_CHECK(copy.has_value(), Code::kTimeout, kSilent);
  return *copy;
}

StorePtr patient(milliseconds patience, StorePtr store) {
  return c10::make_intrusive<PatientStore>([patience] { return Clock::now() + patience; }, patience,
                                           std::move(store));
}

StorePtr patient_until(Deadline deadline, StorePtr store) {
  const auto next_deadline = [deadline] { return std::max(deadline, Clock::now() + kShortest); };
  const auto left = std::chrono::ceil<milliseconds>(next_deadline() - Clock::now());
  return c10::make_intrusive<PatientStore>(next_deadline, left, std::move(store));
}

}  // namespace fsdp2
