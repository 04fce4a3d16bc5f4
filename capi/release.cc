#include "capi/release.h"

#include <atomic>
#include <utility>

#include "capi/error.h"
#include "capi/fork.h"
#include "core/base/log.h"

namespace fsdp2::capi {

namespace {

// What was owed to calls that are gone, or outside of any call. Never destroyed: tensors may be let
// go of while the process ends.
std::atomic<Release*> unclaimed{nullptr};

// Trivial, because threads use it until their very end.
struct ThisThread {
  int scopes = 0;
  bool is_releasing = false;
  Release* owed = nullptr;
};
thread_local ThisThread this_thread;

// `first`: a chain of at least one.
void leave_to_next_call(Release* first) {
  Release* last = first;
  while (last->next != nullptr) {
    last = last->next;
  }
  last->next = unclaimed.load(std::memory_order_relaxed);
  while (!unclaimed.compare_exchange_weak(last->next, first, std::memory_order_release,
                                          std::memory_order_relaxed)) {
  }
}

void owe(Release* release) {
  if (this_thread.scopes == 0) {
    leave_to_next_call(release);
    return;
  }
  release->next = this_thread.owed;
  this_thread.owed = release;
}

// Null if nothing is owed any more.
std::unique_ptr<Release> take_one() {
  Release*& owed = this_thread.owed;
  if (owed == nullptr && unclaimed.load(std::memory_order_relaxed) != nullptr) {
    owed = unclaimed.exchange(nullptr, std::memory_order_acquire);
  }
  std::unique_ptr<Release> one(owed);
  if (one != nullptr) {
    owed = one->next;
  }
  return one;
}

class Releasing {
 public:
  Releasing() { this_thread.is_releasing = true; }
  ~Releasing() { this_thread.is_releasing = false; }
};

}  // namespace

UserData::~UserData() {
  if (release_->fn != nullptr) {
    owe(release_.release());
  }
}

ReleaseScope::ReleaseScope() { ++this_thread.scopes; }

ReleaseScope::~ReleaseScope() {
  if (--this_thread.scopes == 0 && this_thread.owed != nullptr) {
    leave_to_next_call(std::exchange(this_thread.owed, nullptr));
  }
}

void run_releases() {
  if (this_thread.is_releasing || inside_log_sink() || in_fork()) {
    return;
  }
  const Releasing mark;
  while (const auto release = take_one()) {
    const KeepErrorRecord keep;
    release->fn(release->data);
  }
}

}  // namespace fsdp2::capi
