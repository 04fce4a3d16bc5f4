// A store in memory that can stop answering, as one does whose process is stopped.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

namespace fsdp2 {

class SilentStore final : public c10d::HashStore {
 public:
  void stop() { set_stopped(true); }
  // Calls that have waited are answered. What they run in must have ended before the test does.
  void go_on() { set_stopped(false); }

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(this);
  }
  using HashStore::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    answer();
    HashStore::set(key, value);
  }
  using HashStore::compareSet;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& wanted) override {
    answer();
    return HashStore::compareSet(key, expected, wanted);
  }
  int64_t add(const std::string& key, int64_t value) override {
    answer();
    return HashStore::add(key, value);
  }
  bool check(const std::vector<std::string>& keys) override {
    answer();
    return HashStore::check(keys);
  }

 private:
  void answer() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !stopped_; });
  }
  void set_stopped(bool stopped) {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = stopped;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

}  // namespace fsdp2
