// `fsdp2 fit`: the largest micro batch that fits into the memory of a job's ranks on this machine.
#pragma once

#include <string>
#include <vector>

namespace fsdp2::cli {

// program: the path of fsdp2. Returns the exit code: 1 if not even one window fits. Throws
// UsageError.
int run_fit(const std::vector<std::string>& arguments, const std::string& program);

}  // namespace fsdp2::cli
