// What only one run at a time may write to.
#pragma once

#include <chrono>

namespace fsdp2::cli {

// Locks an open file or directory for this run, until it is closed. Waits a while for one that
// another run has, since a run that was killed just now may take a moment to end; false if it keeps
// it. A file system without locks lets everybody in.
bool lock_for_this_run(int file, std::chrono::seconds patience = std::chrono::seconds{12});

}  // namespace fsdp2::cli
