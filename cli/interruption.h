// Signals that ask a command to end, as an exception: what the command has made for itself on the
// disk, and the processes that it has started, go with it.
#pragma once

namespace fsdp2::cli {

// This is no std::exception, so that nobody takes it for a failure to report and go on from.
struct Interrupted {
  int signal = 0;
};

// From now on SIGINT, SIGTERM and SIGHUP are only noted. A second one of a kind ends the process at
// once. A signal that is ignored stays ignored.
void note_interruptions();

// Throws Interrupted if a signal was noted.
void end_if_interrupted();

// Ends the process as the signal would have done.
[[noreturn]] void end_by_signal(int signal);

}  // namespace fsdp2::cli
