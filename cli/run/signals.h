// Signals of the launcher. The handler itself passes SIGINT, SIGTERM and SIGHUP on to all ranks, so
// that they arrive even while the launcher waits for a reader of its output.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>

namespace fsdp2::cli {

// Starts passing signals on to n ranks, none of which runs yet. A second SIGINT kills them. A
// signal that was ignored when the launcher started stays ignored.
void forward_signals(size_t n);
// Says that a rank runs as process group `pid`, or has ended (0). Call with signals held.
void set_rank_process(size_t index, pid_t pid);
// Sends a signal to one rank, unless it has ended.
void signal_rank(size_t index, int signal);
// Sends a signal to all running ranks.
void signal_ranks(int signal);

// Whether a second SIGINT has come.
bool is_insisted_on();

// Holds signals back while it lives.
class SignalsHeld {
 public:
  SignalsHeld();
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

  // The signal mask from before.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

}  // namespace fsdp2::cli
