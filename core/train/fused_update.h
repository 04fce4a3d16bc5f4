// What the optimizers share: checks of their options, and lists for LibTorch's fused kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace fsdp2::train {

inline void check_rate(const char* name, double value) {
  FSDP2_CHECK(std::isfinite(value) && value >= 0.0, Code::kInvalidArgument,
              "{}: expected a finite number >= 0, got {}", name, value);
}

inline void check_fraction(const char* name, double value) {
  FSDP2_CHECK(value >= 0.0 && value < 1.0, Code::kInvalidArgument,
              "{}: expected a number in [0, 1), got {}", name, value);
}

// The fused kernels divide by it; nullopt spares the write-back of unscaled gradients.
inline std::optional<at::Tensor> grad_scale(double divisor) {
  return divisor == 1.0 ? std::nullopt
                        : std::optional<at::Tensor>(at::scalar_tensor(divisor, at::kFloat));
}

// A fused call takes one dtype and the options of one group.
using FusedKey = std::pair<size_t, at::ScalarType>;

// Tensor lists of parameters with a gradient.
struct FusedLists {
  std::vector<at::Tensor> params;
  std::vector<at::Tensor> grads;
  std::vector<at::Tensor> first_state;
  std::vector<at::Tensor> second_state;
  std::vector<at::Tensor> steps;
};

}  // namespace fsdp2::train
