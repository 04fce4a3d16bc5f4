// A job whose ranks are threads of one process: where they meet, and what they share.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "core/comm/failure/failure_notice.h"
#include "core/comm/meet/store.h"
#include "core/comm/transport/thread_backend.h"

namespace fsdp2 {

class ThreadJob {
 public:
  // Returns once all `size` ranks have come. The name is then free for the next job. Errors:
  // kInvalidArgument (a rank came twice, sizes differ), kTimeout (names the missing ranks).
  static std::shared_ptr<ThreadJob> join(const std::string& name, int rank, int size,
                                         std::chrono::milliseconds timeout);

  explicit ThreadJob(int size);
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }
  const std::shared_ptr<FailureNotice>& failure() const { return failure_; }

  // The group with that key; each of its ranks asks once.
  std::shared_ptr<ThreadGroup> group(const std::string& key, int size);

 private:
  struct Invitation {
    std::shared_ptr<ThreadGroup> group;
    int open;  // ranks that have not asked yet
  };

  // The job of that name whose ranks are gathering.
  static std::shared_ptr<ThreadJob> find_or_begin(const std::string& name, int size,
                                                  std::chrono::milliseconds timeout);
  // With the mutex held:
  bool all_are_here() const { return static_cast<int>(present_.size()) == size_; }
  bool is_over() const { return given_up_ || all_are_here(); }  // its gathering; it is forgotten
  void come(const std::string& name, int rank, int size);
  void wait_for_all(const std::string& name, std::chrono::milliseconds timeout,
                    std::unique_lock<std::mutex>& lock);

  const int size_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<FailureNotice> failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> present_;
  bool given_up_ = false;  // a rank has waited in vain for the others
  std::map<std::string, Invitation> invitations_;
};

}  // namespace fsdp2
