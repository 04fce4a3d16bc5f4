// Signals of the launcher. SIGINT, SIGTERM and SIGHUP are passed on to all ranks from within the
// handler, so that they arrive even while the launcher waits for a reader of its output.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>

namespace fsdp2::cli {

// Starts passing signals on to n ranks, none of which runs yet. A second SIGINT kills them. What
// was ignored when the launcher was started stays so.
void forward_signals(size_t n);
// A rank runs as process group `pid`; 0: it has ended. Call with signals held.
void set_rank_process(size_t index, pid_t pid);
// Sends a signal to all ranks that run.
void signal_ranks(int signal);
// The last signal passed on, 0: none.
int forwarded_signal();

// Holds signals back while it lives.
class SignalsHeld {
 public:
  SignalsHeld();
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

  // What was let through before.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

}  // namespace fsdp2::cli
