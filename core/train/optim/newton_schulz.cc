#include "core/train/optim/newton_schulz.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

namespace fsdp2::train {

at::Tensor newton_schulz(const at::Tensor& matrix, int64_t steps) {
  constexpr double kLinear = 3.4445;
  constexpr double kCubic = -4.7750;
  constexpr double kQuintic = 2.0315;
  constexpr double kLeastNorm = 1e-7;
  // The products are of the shorter side's size.
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = is_tall ? matrix.t() : matrix;
  x = x / at::linalg_vector_norm(x).clamp_min(kLeastNorm);
  for (int64_t step = 0; step < steps; ++step) {
    const at::Tensor gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kCubic, kQuintic), x, kLinear);
  }
  return is_tall ? x.t() : x;
}

}  // namespace fsdp2::train
