// y = silu(gate) * up and its gradients, a pack at a time.
#pragma once

#include <cmath>

#include "core/cuda/math/pack.h"

namespace fsdp2::cuda {

FSDP2_HOST_DEVICE inline float sigmoid(float x) { return reciprocal(1.0F + expf(-x)); }

// For the pack at `at` of n elements.
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline void silu_multiply(const T* gate, const T* up, T* y, int64_t at,
                                            int64_t n) {
  for_pack<kWidth>(at, n, [&](auto width, int64_t i) {
    const auto g = load<width>(gate + i);
    const auto u = load<width>(up + i);
    Floats<width> out;
    for (int j = 0; j < width; ++j) {
      out.values[j] = g.values[j] * sigmoid(g.values[j]) * u.values[j];
    }
    store<width>(out, y + i);
  });
}

template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline void silu_multiply_gradients(const T* dy, const T* gate, const T* up,
                                                      T* dgate, T* dup, int64_t at, int64_t n) {
  for_pack<kWidth>(at, n, [&](auto width, int64_t i) {
    const auto d = load<width>(dy + i);
    const auto g = load<width>(gate + i);
    const auto u = load<width>(up + i);
    Floats<width> dgate_out;
    Floats<width> dup_out;
    for (int j = 0; j < width; ++j) {
      const float share = sigmoid(g.values[j]);
      const float silu = g.values[j] * share;
      dup_out.values[j] = d.values[j] * silu;
      dgate_out.values[j] = d.values[j] * u.values[j] * (share + silu * (1.0F - share));
    }
    store<width>(dgate_out, dgate + i);
    store<width>(dup_out, dup + i);
  });
}

}  // namespace fsdp2::cuda
