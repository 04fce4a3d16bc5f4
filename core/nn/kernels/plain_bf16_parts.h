// What bf16_parts.h does, spelled out in LibTorch's operators: what tests hold it against, and what
// takes its place in a LibTorch without MKL. Slower than an fp32 product.
#pragma once

#include "core/nn/kernels/bf16_parts.h"

namespace fsdp2::nn::plain {

Bf16Parts split_in_bf16(const at::Tensor& matrix, int parts);
void add_parts_product(const at::Tensor& sum, const Bf16Parts& a, const Bf16Parts& b, double beta);

}  // namespace fsdp2::nn::plain
