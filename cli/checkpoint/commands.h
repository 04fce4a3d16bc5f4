// What can be done with checkpoints offline.
#pragma once

#include <string>
#include <vector>

namespace fsdp2::cli {

// `fsdp2 inspect` and `fsdp2 convert`; they return the exit code. Throw UsageError and Failure.
int inspect(const std::vector<std::string>& arguments);
int convert(const std::vector<std::string>& arguments);

}  // namespace fsdp2::cli
