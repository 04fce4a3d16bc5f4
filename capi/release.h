// What callers get back: the user_data of their functions, the tensors that they lent by DLPack.
//
// The last reference may go anywhere: on a thread of the library, at a thread's exit, under a lock
// of LibTorch's. A release function may be foreign code that only some threads may enter (Go's, a
// JVM's), and may call the library. So it is only written down there, and runs where a call of the
// library returns to its caller or a callback has returned: on this thread, or, if the thread was
// inside no call, on that of the next call of any thread.
#pragma once

#include <memory>

#include "include/fsdp2/base.h"

namespace fsdp2::capi {

// A release that is owed. Made beforehand, so that nothing can fail where the last reference goes.
struct Release {
  void* data = nullptr;
  fsdp2_release_fn fn = nullptr;
  Release* next = nullptr;
};

// The caller's data, released with the last copy of what uses it. The call that takes it sets the
// function once nothing can fail any more: a call that fails does not take it.
class UserData {
 public:
  explicit UserData(void* data) : release_(new Release{data}) {}
  ~UserData();
  UserData(const UserData&) = delete;
  UserData& operator=(const UserData&) = delete;

  void* data() const { return release_->data; }
  void release_by(fsdp2_release_fn fn) { release_->fn = fn; }

 private:
  std::unique_ptr<Release> release_;
};

// While it lives, this thread is inside a call, to which what is owed from here on belongs. What
// is still owed at the end of the outermost one is left to the next call of any thread.
class ReleaseScope {
 public:
  ReleaseScope();
  ~ReleaseScope();
  ReleaseScope(const ReleaseScope&) = delete;
  ReleaseScope& operator=(const ReleaseScope&) = delete;
};

// Runs what is owed to this thread's call, and what was owed outside of any. In a fork, inside a
// log function and inside a release function it does nothing; the last goes on with what has come.
// REQUIRES: a ReleaseScope; no lock is held.
void run_releases();

}  // namespace fsdp2::capi
