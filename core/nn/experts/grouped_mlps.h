// The MLPs of a mixture's experts in three products of groups of rows. Each by itself would be
// three products of its own, hundreds for a layer, and the host would have to wait for the device
// to learn how many rows each has.
//
// LibTorch multiplies groups whose weights lie one behind the other, which parameters do not. So
// they are copied together for each product, in forward and again in backward, and the copy is gone
// with it: it takes the memory of one of the three weights of all experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "core/nn/layers/layers.h"

namespace fsdp2::nn {

// Whether grouped_mlps() computes on such rows what the MLPs would by themselves, and sooner: on a
// device that multiplies groups of bf16 in one launch (compute capability 9 and 10), where calling
// an MLP does no more than to compute with its weights, and these are not so large that copying
// them costs more than launches do.
bool may_run_grouped(const std::vector<std::shared_ptr<GatedMlp>>& mlps, const at::Tensor& rows);

// rows [n,D], those of MLP 0 first; ends [MLPs] int32, on their device: the row behind each MLP's
// last, up to n -> [n,D]. The host looks at no value. Differentiable: an MLP without rows gets a
// gradient of zero. REQUIRES: MLPs of one activation and one shape, in rows' dtype and without
// biases.
at::Tensor grouped_mlps(const std::vector<std::shared_ptr<GatedMlp>>& mlps, const at::Tensor& rows,
                        const at::Tensor& ends);

}  // namespace fsdp2::nn
