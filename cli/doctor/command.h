// `fsdp2 doctor`: looks at a machine, and at jobs on it. It does not load LibTorch, so that it can
// say why that does not load.
#pragma once

#include <string>
#include <vector>

namespace fsdp2::cli {

// program: the path of fsdp2, beside which fsdp2-train is. Returns the exit code: 1 where something
// has failed. Throws UsageError.
int run_doctor(const std::vector<std::string>& arguments, const std::string& program);

}  // namespace fsdp2::cli
