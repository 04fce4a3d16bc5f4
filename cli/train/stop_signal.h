// SIGTERM and SIGINT, by which a scheduler or a person asks a run to end.
//
// No handler runs: the signals are held back in all threads, so that they interrupt no system call,
// and a thread of its own waits for them.
#pragma once

#include <string>

namespace fsdp2::cli {

// Begins to wait for the signals. Until note_stop_signals they end the process, as they do by
// themselves. Call it before other threads start: these inherit what is held back. A signal that is
// ignored stays ignored.
void watch_stop_signals();

// From now on the first signal is only noted. A second one ends the process, and so does the end of
// `grace_s` seconds (0: never), which is told on standard error. `rank`: for that message. Call it
// once.
void note_stop_signals(double grace_s, const std::string& rank);

// The signal that was noted, on this rank; 0: none.
int noted_stop_signal();

// From now on a write to a pipe that nobody reads any more fails, and so does one beyond the
// largest size of a file: by themselves, both end the process without a word.
void let_writes_fail();

// "SIGTERM"
std::string stop_signal_name(int number);

}  // namespace fsdp2::cli
