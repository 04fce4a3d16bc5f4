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

  void forget(const std::string& name, const std::shared_ptr<ThreadJob>& job) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = jobs.find(name);
    if (found != jobs.end() && found->second == job) {
      jobs.erase(found);
    }
  }
};

Gathering& gathering() {
  static Gathering instance;
  return instance;
}

}  // namespace

ThreadJob::ThreadJob(int size)
    : size_(size),
      store_(c10::make_intrusive<c10d::HashStore>()),
      failure_(FailureNotice::local()) {}

std::shared_ptr<ThreadJob> ThreadJob::join(const std::string& name, int rank, int size,
                                           std::chrono::milliseconds timeout) {
  std::shared_ptr<ThreadJob> job;
  {
    const std::lock_guard<std::mutex> lock(gathering().mutex);
    auto& entry = gathering().jobs[name];
    if (entry == nullptr) {
      entry = std::make_shared<ThreadJob>(size);
      entry->store_->setTimeout(timeout);
    }
    job = entry;
  }
  std::unique_lock<std::mutex> lock(job->mutex_);
  FSDP2_CHECK(job->size_ == size, Code::kInvalidArgument,
              "thread://{}: rank {} says that there are {} ranks, another one said {}", name, rank,
              size, job->size_);
  FSDP2_CHECK(job->present_.insert(rank).second, Code::kInvalidArgument,
              "thread://{}: rank {} is there already", name, rank);
  const auto all_here = [&] { return static_cast<int>(job->present_.size()) == size; };
  if (all_here()) {
    gathering().forget(name, job);
  }
  job->changed_.notify_all();
  job->changed_.wait_for(lock, timeout, [&] { return all_here() || job->given_up_; });
  if (all_here()) {
    return job;
  }
  job->given_up_ = true;
  job->changed_.notify_all();
  gathering().forget(name, job);
  std::vector<int> missing;
  for (int other = 0; other < size; ++other) {
    if (job->present_.count(other) == 0) {
      missing.push_back(other);
    }
  }
  fail(Code::kTimeout, "thread://{}: {} of {} ranks came within {:.1f} s, missing: {}", name,
       job->present_.size(), size, std::chrono::duration<double>(timeout).count(),
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
