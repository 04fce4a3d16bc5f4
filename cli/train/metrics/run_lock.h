// What only one run at a time may write to.
#pragma once

namespace fsdp2::cli {

// Locks an open file or directory for this run, until it is closed. Waits for a few seconds for one
// that another run has, since a run that was killed just now may take a moment to end; false if it
// keeps it. A file system without locks lets everybody in.
bool lock_for_this_run(int file);

}  // namespace fsdp2::cli
