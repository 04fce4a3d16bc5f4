// The rows of a mixture of experts: each token's row goes to the experts that it has picked, and
// their rows come back as one. Tokens are sorted once, and an expert's rows lie together in one
// buffer, so that each expert is a product of its own without a copy of its own.
//
// Shapes: T tokens, K picks of a token, D features, n = T * K rows of all experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fsdp2::nn {

// Which row is whose. The rows of expert 0 come first, and an expert's are in the order of their
// tokens, on every device.
struct ExpertRows {
  at::Tensor pick_of_row;       // [n] int64: token * K + pick
  at::Tensor row_of_pick;       // [T,K] int64
  std::vector<int64_t> counts;  // rows by expert
};

// picks [T,K] int64, each below `experts`. The host reads the counts, and nothing else.
ExpertRows sort_by_expert(const at::Tensor& picks, int64_t experts);

// tokens [T,D] -> for each expert its rows [count,D]. Differentiable; second derivatives are
// refused (kUnsupported), as below.
std::vector<at::Tensor> rows_for_experts(const at::Tensor& tokens, const ExpertRows& rows);

// outputs: for each expert [count,D]; weights [T,K], of the same dtype -> [T,D]: for each token the
// sum of weight * row over its picks, in fp32 inside where the CPU's own loops run. Differentiable.
at::Tensor weighted_sums(const std::vector<at::Tensor>& outputs, const at::Tensor& weights,
                         const ExpertRows& rows);

}  // namespace fsdp2::nn
