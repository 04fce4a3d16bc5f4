// How much of the machine's memory this process uses.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp2::cli {

// A figure of /proc/self/status ("VmRSS", "VmHWM") in bytes; 0 if there is none.
int64_t status_bytes(const std::string& key);

// The most that this process has ever had in memory.
int64_t peak_rss();
// Begins a peak of its own for what comes next, where the system allows that, and returns what the
// process has now, without what the allocator had kept. peak_rss keeps the peak before.
int64_t begin_peak_rss();
// The most since then.
int64_t peak_rss_since_begin();

}  // namespace fsdp2::cli
