#include "core/base/quiet_thread.h"

#include <signal.h>

#include <utility>

namespace fsdp2 {

namespace {

// A thread begins with the mask of the one that starts it.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

std::thread start_quiet_thread(std::function<void()> work) {
  const AllSignalsBlocked blocked;
  return std::thread(std::move(work));
}

}  // namespace fsdp2
