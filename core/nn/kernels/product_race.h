// Which of several ways to multiply matrices is the fastest on this CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <vector>

namespace fsdp2::nn {

// a [m,k] b [n,k] -> a b^T [m,n]
using ProductWay = std::function<at::Tensor(const at::Tensor& a, const at::Tensor& b)>;

// GFLOP/s of each, over the three products of a linear layer of medium size; a few tens of ms. By
// the time that this thread has a processor, so that other programs hardly disturb it. dtypes: of
// the operands that each is given, fp32 if there are none.
std::vector<double> race_products(const std::vector<ProductWay>& ways,
                                  const std::vector<at::ScalarType>& dtypes = {});

// A way that is usual is kept unless another one is faster by this factor: near a tie the noise of
// one measurement must not decide, or two runs on one machine would round differently.
constexpr double kClearlyFaster = 1.25;

}  // namespace fsdp2::nn
