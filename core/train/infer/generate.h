// Text generation by a causal language model: several prompts at once, one token of each at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/nn/module.h"
#include "core/train/infer/sampler.h"

namespace fsdp2::train {

using TokenRows = std::vector<std::vector<int64_t>>;

struct GenerateOptions {
  int64_t max_new_tokens = 64;
  std::vector<int64_t> stop_tokens;  // a row ends with the first of them
  SamplerOptions sampler;
  int64_t first_row = 0;  // the number of the first prompt here among those of all ranks
  std::optional<bool> reshard_after_forward;  // see ForwardRun
  // The images and videos of all prompts, in their order: what a model that sees takes behind the
  // mask (see LanguageModel), undefined where it is left out.
  std::vector<at::Tensor> vision;
};

// Error: kInvalidArgument if the module does not take so many inputs of images and videos.
void check_vision_count(const nn::Module& module, size_t count);

// What generate needs of its arguments. Errors: kInvalidArgument, kUnsupported for a module that is
// no language model.
void check_generation(const nn::Module& module, const TokenRows& prompts,
                      const GenerateOptions& options);

// The new tokens of each prompt, a stop token included. Only the last tokens of a row longer than
// the model's positions count; one with images may not be longer. A token that an image or video
// would have to stand in for is never drawn. What a row becomes does not depend on the rows beside
// it, or on which rank has it, but for rounding and for rope types that follow the longest sequence
// of a batch (rotary_embedding.h). Collective if the module is sharded: each rank passes prompts of
// its own, or none, and the same options apart from first_row. REQUIRES: check_generation.
TokenRows generate(nn::Module& module, const TokenRows& prompts, const GenerateOptions& options);

}  // namespace fsdp2::train
