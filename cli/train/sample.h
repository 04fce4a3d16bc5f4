// Text that the trained model writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/library.h"
#include "cli/train/flags/options.h"

namespace fsdp2::cli {

struct Sample {
  std::string prompt;
  std::string text;   // what the model continued it with
  std::string whole;  // both
};

// The tokens that the sample begins with. Throws Failure for a prompt that the model cannot read;
// call it before hours of training, not after.
std::vector<int64_t> prompt_tokens(const TrainOptions& options, int64_t vocab_size);

// Collective; the same on all ranks.
Sample make_sample(const TrainOptions& options, const Module& module,
                   const std::vector<int64_t>& prompt);

}  // namespace fsdp2::cli
