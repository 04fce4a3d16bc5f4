// The library's own messages, as `fsdp2 train` shows them.
#pragma once

#include <string>

namespace fsdp2::cli {

// Shows them on standard error, from the levels up that `flag` has, the value of --log, or else
// FSDP2_LOG. Throws UsageError for what that variable has.
void show_library_log(const std::string& flag = "");

}  // namespace fsdp2::cli
