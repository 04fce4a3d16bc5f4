// How the next token of a row is chosen from its logits.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fsdp2::train {

struct SamplerOptions {
  double temperature = 1.0;  // 0: always the most likely token
  int64_t top_k = 0;         // only the k most likely; 0: all
  double top_p = 0.0;        // of those, the fewest that are as likely together; 0 or 1: all
  uint64_t seed = 0;
};

// Errors: kInvalidArgument.
void check_sampler(const SamplerOptions& options, int64_t vocab_size);

// Draws the tokens of one row. What it draws follows from the seed, the row's number and its logits
// alone.
class Sampler {
 public:
  // row: its number among all rows of a job.
  Sampler(const SamplerOptions& options, int64_t row);

  // logits [V] fp32, on the host.
  int64_t next(const at::Tensor& logits);

 private:
  SamplerOptions options_;
  at::Generator generator_;
};

}  // namespace fsdp2::train
