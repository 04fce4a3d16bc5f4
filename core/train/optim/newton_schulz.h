// The nearest orthogonal matrix, about: Newton's and Schulz's iteration of fifth order, with
// coefficients whose slope at zero is steep, so that five steps bring all singular values between
// 0.5 and 1.5.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fsdp2::train {

// Takes and gives a matrix in bf16, as torch.optim.Muon computes it; zeros stay zeros.
at::Tensor newton_schulz(const at::Tensor& matrix, int64_t steps);

}  // namespace fsdp2::train
