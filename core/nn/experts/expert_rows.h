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
  at::Tensor ends;              // [experts] int32: the row behind each expert's last
  std::vector<int64_t> counts;  // rows by part, in which they are handed out
};

// picks [T,K] int64, each below `experts`. All rows are one part, and the host reads nothing.
ExpertRows sort_by_expert(const at::Tensor& picks, int64_t experts);
// From here on each expert's rows are a part. The host reads how many they are.
void split_by_expert(ExpertRows& rows);

// tokens [T,D] -> for each part its rows [count,D]. Differentiable; second derivatives are refused
// (kUnsupported), as below.
std::vector<at::Tensor> rows_for_experts(const at::Tensor& tokens, const ExpertRows& rows);

// outputs: for each part [count,D]; weights [T,K], of the same dtype -> [T,D]: for each token the
// sum of weight * row over its picks, in fp32 inside where the CPU's own loops run. Differentiable.
at::Tensor weighted_sums(const std::vector<at::Tensor>& outputs, const at::Tensor& weights,
                         const ExpertRows& rows);

}  // namespace fsdp2::nn
