// The commands that compute with a model without training it.
#pragma once

#include <string>
#include <vector>

namespace fsdp2::cli {

// Collective. Throw UsageError, the same on all ranks, and Failure.
void generate(const std::vector<std::string>& arguments);
void score(const std::vector<std::string>& arguments);

}  // namespace fsdp2::cli
