// The commands that work on checkpoints offline.
#pragma once

#include <string>
#include <vector>

namespace fsdp2::cli {

// Return the exit code. Throw UsageError and Failure.
int inspect(const std::vector<std::string>& arguments);
int convert(const std::vector<std::string>& arguments);

}  // namespace fsdp2::cli
