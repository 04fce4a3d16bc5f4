#include "core/base/spare_threads.h"

#include <future>
#include <system_error>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/quiet_thread.h"

namespace fsdp2 {

namespace {

// Threads that do nothing until it goes.
class WaitingThreads {
 public:
  explicit WaitingThreads(int most) { threads_.reserve(static_cast<size_t>(most)); }
  ~WaitingThreads() {
    gate_.set_value();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  WaitingThreads(const WaitingThreads&) = delete;
  WaitingThreads& operator=(const WaitingThreads&) = delete;

  void add() {
    threads_.push_back(start_quiet_thread([open = open_] { open.wait(); }));
  }
  size_t count() const { return threads_.size(); }

 private:
  std::promise<void> gate_;
  std::shared_future<void> open_ = gate_.get_future().share();
  std::vector<std::thread> threads_;
};

}  // namespace

void check_spare_threads(int count) {
  WaitingThreads threads(count);
  for (int i = 0; i < count; ++i) {
    try {
      threads.add();
    } catch (const std::system_error& error) {
      throw Error(Code::kOutOfMemory,
                  fmt::format("expected room for {} more threads, the system gives {}: {}", count,
                              threads.count(), error.code().message()),
                  error.code().value());
    }
  }
}

}  // namespace fsdp2
