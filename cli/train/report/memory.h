// How much of the machine's memory this process uses.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp2::cli {

// A figure of /proc/self/status ("VmRSS", "VmHWM") in bytes; 0 if there is none.
int64_t status_bytes(const std::string& key);

}  // namespace fsdp2::cli
