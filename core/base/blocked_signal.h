// Keeps a signal away from this thread while the guard lives, and forever from threads that are
// started meanwhile.
//
//   const BlockedSignal guard(SIGXFSZ);
//   ... write(file, ...) ...  // beyond the limit of a file's size: EFBIG, and the process goes on
//
// By default SIGPIPE (a peer that has died) and SIGXFSZ (a file above ulimit -f) end the process. A
// library must not change its host's signal handlers, but a thread inherits the mask of the thread
// that starts it. So transports are made under a guard, and so are those calls that write at once.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <ctime>

namespace fsdp2 {

class BlockedSignal {
 public:
  explicit BlockedSignal(int signal) {
    sigemptyset(&signal_);
    sigaddset(&signal_, signal);
    sigset_t pending;
    sigpending(&pending);
    pending_before_ = sigismember(&pending, signal) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~BlockedSignal() {
    if (!pending_before_) {  // takes the signal that came meanwhile, if one did
      const timespec at_once{};
      sigtimedwait(&signal_, nullptr, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignal(const BlockedSignal&) = delete;
  BlockedSignal& operator=(const BlockedSignal&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
  bool pending_before_ = false;
};

}  // namespace fsdp2
