#include "core/comm/transport/thread_job.h"

#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <vector>

#include "core/base/error.h"

namespace fsdp2 {

namespace {

// The jobs whose ranks are still gathering, by name. Threads that know nothing but a name can only
// find each other through something global.
struct Gathering {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<ThreadJob>> jobs;

  void forget(const std::string& name, const ThreadJob* job) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = jobs.find(name);
    if (found != jobs.end() && found->second.get() == job) {
      jobs.erase(found);
    }
  }
};

// Never destroyed: ranks may still come while the process ends.
Gathering& gathering() {
  static auto* const instance = new Gathering;
  return *instance;
}

}  // namespace

ThreadJob::ThreadJob(int size)
    : size_(size),
      store_(c10::make_intrusive<c10d::HashStore>()),
      failure_(FailureNotice::local()) {}

std::shared_ptr<ThreadJob> ThreadJob::find_or_begin(const std::string& name, int size,
                                                    std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(gathering().mutex);
  std::shared_ptr<ThreadJob>& job = gathering().jobs[name];
  if (job == nullptr) {
    job = std::make_shared<ThreadJob>(size);
    job->store_->setTimeout(timeout);
  }
  return job;
}

std::shared_ptr<ThreadJob> ThreadJob::join(const std::string& name, int rank, int size,
                                           std::chrono::milliseconds timeout) {
  for (;;) {
    const std::shared_ptr<ThreadJob> job = find_or_begin(name, size, timeout);
    std::unique_lock<std::mutex> lock(job->mutex_);
    // A job that was found may have ended its gathering before it was locked.
    if (!job->is_over()) {
      job->come(name, rank, size);
      job->wait_for_all(name, timeout, lock);
      return job;
    }
  }
}

void ThreadJob::come(const std::string& name, int rank, int size) {
  FSDP2_CHECK(size_ == size, Code::kInvalidArgument,
              "thread://{}: rank {} says that there are {} ranks, another one said {}", name, rank,
              size, size_);
  FSDP2_CHECK(present_.insert(rank).second, Code::kInvalidArgument,
              "thread://{}: rank {} is there already", name, rank);
  if (all_are_here()) {
    gathering().forget(name, this);
    changed_.notify_all();
  }
}

void ThreadJob::wait_for_all(const std::string& name, std::chrono::milliseconds timeout,
                             std::unique_lock<std::mutex>& lock) {
  changed_.wait_for(lock, timeout, [this] { return is_over(); });
  if (all_are_here()) {
    return;
  }
  if (!given_up_) {
    given_up_ = true;
    gathering().forget(name, this);
    changed_.notify_all();
  }
  std::vector<int> missing;
  for (int other = 0; other < size_; ++other) {
    if (present_.count(other) == 0) {
      missing.push_back(other);
    }
  }
  fail(Code::kTimeout, "thread://{}: {} of {} ranks came within {:.1f} s, missing: {}", name,
       present_.size(), size_, std::chrono::duration<double>(timeout).count(),
       fmt::join(missing, ", "));
}

std::shared_ptr<ThreadGroup> ThreadJob::group(const std::string& key, int size) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = invitations_.try_emplace(key, Invitation{nullptr, size}).first;
  Invitation& invitation = found->second;
  if (invitation.group == nullptr) {
    invitation.group = make_thread_group(size);
  }
  const std::shared_ptr<ThreadGroup> group = invitation.group;
  if (--invitation.open == 0) {
    invitations_.erase(found);
  }
  return group;
}

}  // namespace fsdp2
