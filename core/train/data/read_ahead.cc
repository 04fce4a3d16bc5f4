#include "core/train/data/read_ahead.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/quiet_thread.h"

namespace fsdp2::train {

struct ReadAhead::Worker {
  using Work = std::packaged_task<TokenBatch()>;

  Worker() : thread(start_quiet_thread([this] { run(); })) {}
  ~Worker() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      ends = true;
      queue.clear();
    }
    changed.notify_one();
    thread.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void add(Work work) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      queue.push_back(std::move(work));
    }
    changed.notify_one();
  }

  void run() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ends || !queue.empty(); });
      if (ends) {
        return;
      }
      Work work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      work();  // keeps what it throws
      lock.lock();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> queue;  // these two under the mutex
  bool ends = false;
  std::thread thread;  // last: it uses all others
};

ReadAhead::ReadAhead() : owner_(::getpid()) {}

ReadAhead::~ReadAhead() { forget_parent(); }

void ReadAhead::forget_parent() {
  if (::getpid() != owner_) {
    owner_ = ::getpid();
    static_cast<void>(worker_.release());
    batches_.clear();
  }
}

size_t ReadAhead::pending() {
  forget_parent();
  return batches_.size();
}

void ReadAhead::add(std::function<TokenBatch()> work) {
  forget_parent();
  if (worker_ == nullptr) {
    worker_ = std::make_unique<Worker>();
  }
  Worker::Work task(std::move(work));
  batches_.push_back(task.get_future());
  worker_->add(std::move(task));
}

TokenBatch ReadAhead::take() {
  std::future<TokenBatch> batch = std::move(batches_.front());
  batches_.pop_front();
  return batch.get();
}

void ReadAhead::clear() {
  forget_parent();
  worker_.reset();
  batches_.clear();
}

}  // namespace fsdp2::train
