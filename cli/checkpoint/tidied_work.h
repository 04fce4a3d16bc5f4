// Work in a process of its own, whose leavings on the disk are removed if a signal ends it: one by
// which it was asked to end, or that of a system whose memory has run out.
#pragma once

#include <functional>
#include <string>

namespace fsdp2::cli {

// Does `work`, which writes to `path`, and returns its exit code. Signals that ask this process to
// end, but for SIGKILL, are passed on to it; where a signal ends it, this process ends by the same
// one, and what was written in place of `path` until it is whole is gone. REQUIRES: this process
// has no other threads, and has not used LibTorch.
int tidied(const std::string& path, const std::function<int()>& work);

}  // namespace fsdp2::cli
