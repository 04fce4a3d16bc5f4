// y = w * T(x * rstd) over the rows of x, and its gradients: what each member of a row's team does.
// Rows and w are [n], n a multiple of kWidth.
#pragma once

#include <cmath>

#include "core/cuda/math/pack.h"
#include "core/cuda/math/row_team.h"

namespace fsdp2::cuda {

template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline float square_sum(const T* x, int64_t n, const Member& member) {
  float sum = 0;
  for_own_packs<kWidth>(member, n, [&](int64_t i) {
    const auto pack = load<kWidth>(x + i);
    for (const float value : pack.values) {
      sum += value * value;
    }
  });
  return sum;
}

FSDP2_HOST_DEVICE inline float rstd_of(float square_sum, int64_t n, float eps) {
  return 1.0F / sqrtf(square_sum / static_cast<float>(n) + eps);
}

// Rounded before the weight comes in, as transformers does.
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline void normalize(const T* x, const T* w, float rstd, T* y, int64_t n,
                                        const Member& member) {
  for_own_packs<kWidth>(member, n, [&](int64_t i) {
    const auto in = load<kWidth>(x + i);
    const auto weight = load<kWidth>(w + i);
    Floats<kWidth> out;
    for (int j = 0; j < kWidth; ++j) {
      const auto rounded = static_cast<T>(in.values[j] * rstd);
      out.values[j] = weight.values[j] * static_cast<float>(rounded);
    }
    store<kWidth>(out, y + i);
  });
}

// Sum of dy * w * x.
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline float gradient_along_row(const T* dy, const T* x, const T* w, int64_t n,
                                                  const Member& member) {
  float sum = 0;
  for_own_packs<kWidth>(member, n, [&](int64_t i) {
    const auto d = load<kWidth>(dy + i);
    const auto in = load<kWidth>(x + i);
    const auto weight = load<kWidth>(w + i);
    for (int j = 0; j < kWidth; ++j) {
      sum += d.values[j] * weight.values[j] * in.values[j];
    }
  });
  return sum;
}

// dx, unless it is null, and dw_sum [n] += dy * x * rstd, of which a member has the same elements
// in each row. sum: what gradient_along_row makes of all members. dx_besides, unless it is null, is
// added to dx.
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline void norm_gradients(const T* dy, const T* x, const T* w, float rstd,
                                             float sum, const T* dx_besides, T* dx, float* dw_sum,
                                             int64_t n, const Member& member) {
  const float along_x = rstd * rstd * rstd * sum / static_cast<float>(n);
  for_own_packs<kWidth>(member, n, [&](int64_t i) {
    const auto d = load<kWidth>(dy + i);
    const auto in = load<kWidth>(x + i);
    auto dw = load<kWidth>(dw_sum + i);
    for (int j = 0; j < kWidth; ++j) {
      dw.values[j] += d.values[j] * in.values[j] * rstd;
    }
    store<kWidth>(dw, dw_sum + i);
    if (dx != nullptr) {
      const auto weight = load<kWidth>(w + i);
      auto out = load_or_zero<kWidth>(dx_besides, i);
      for (int j = 0; j < kWidth; ++j) {
        out.values[j] += rstd * d.values[j] * weight.values[j] - along_x * in.values[j];
      }
      store<kWidth>(out, dx + i);
    }
  });
}

}  // namespace fsdp2::cuda
