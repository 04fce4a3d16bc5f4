// Text generation by sampling from a causal language model, one token at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "core/models/language_model.h"
#include "core/nn/module.h"

namespace fsdp2::train {

struct GenerateOptions {
  int64_t max_new_tokens = 64;
  int64_t top_k = 0;         // 0: all
  double temperature = 1.0;  // 0: the most likely token
  uint64_t seed = 0;
};

// What generate needs of its arguments. Errors: kInvalidArgument.
void check_generation(const models::LanguageModel& model, const std::vector<int64_t>& prompt,
                      const GenerateOptions& options);

// The new tokens. Only the last tokens of a prompt longer than the model's positions count.
// Collective if the model is sharded: every rank passes the same and gets the same. Errors:
// check_generation's, kUnsupported for a module that is no language model.
std::vector<int64_t> generate(nn::Module& module, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options);

}  // namespace fsdp2::train
