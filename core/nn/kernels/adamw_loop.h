// AdamW's update of parameters in fp32 whose moments are kept in bf16, on CPUs: one pass over
// memory, arithmetic in fp32. adamw.h (core/train/optim) says how moments are rounded, and why.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/nn/kernels/simd_rows.h"

namespace fsdp2::nn::cpu_kernels {

// Where a shard's elements are in the whole parameter, counted row by row: in runs of `run`
// elements, the first of which begins at `first` and each other one `stride` after the one before.
struct ElementPlaces {
  int64_t first = 0;
  int64_t run = 0;
  int64_t stride = 0;
};

// Updates one shard. All tensors are contiguous, on the CPU and of one size; param and grad are
// fp32, the moments bf16. exp_avg is rounded to nearest, exp_avg_sq by chance, with the random bits
// that the keys give each element's place. The gradient is left divided. An element's bits depend
// on its own numbers alone, not on what lies beside it or on the number of threads.
void adamw_with_bf16_moments(const at::Tensor& param, const at::Tensor& grad,
                             const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                             const simd::AdamWNumbers& numbers, simd::HashKeys keys,
                             const ElementPlaces& places);

}  // namespace fsdp2::nn::cpu_kernels
