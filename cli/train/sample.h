// Text from the model that has been trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/library.h"
#include "cli/train/options.h"

namespace fsdp2::cli {

struct Sample {
  std::string prompt;
  std::string text;  // what the model put behind it; numbers, unless tokens are bytes
};

// The tokens that the sample goes on from. Throws Failure for a prompt that the model cannot read:
// to be asked before hours of training rather than after.
std::vector<int64_t> prompt_tokens(const TrainOptions& options, int64_t vocab_size);

// Collective; the same on all ranks.
Sample make_sample(const TrainOptions& options, const Module& module,
                   const std::vector<int64_t>& prompt);

}  // namespace fsdp2::cli
