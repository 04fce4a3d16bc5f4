// Keeps SIGPIPE away from this thread while the guard lives, and forever from threads that are
// started meanwhile.
//
// Gloo and the store's server write to sockets whose peer may have died, and by default that ends
// the process. A library must not change its host's signal handlers, but a thread inherits the mask
// of the thread that starts it. So transports are made under this guard, and so are those of their
// calls that write at once.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <ctime>

namespace fsdp2 {

class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    pending_before_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~NoSigpipe() {
    if (!pending_before_) {  // takes the signal that came meanwhile, if one did
      const timespec at_once{};
      sigtimedwait(&sigpipe_, nullptr, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t sigpipe_;
  sigset_t before_;
  bool pending_before_ = false;
};

}  // namespace fsdp2
