// What this process takes of the machine's memory.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp2::cli {

// A figure of /proc/self/status ("VmRSS", "VmHWM") in bytes; 0 where there is none.
int64_t status_bytes(const std::string& key);

}  // namespace fsdp2::cli
