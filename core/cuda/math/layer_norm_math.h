// y = (x - mean) * rstd * w + b over the rows of x, and its gradients: what each member of a row's
// team does. Rows, w and b are [n], n a multiple of kWidth.
#pragma once

#include "core/cuda/math/pack.h"
#include "core/cuda/math/row_team.h"

namespace fsdp2::cuda {

template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline float row_sum(const T* x, int64_t n, const Member& member) {
  float sum = 0;
  for_own_packs<kWidth>(member, n, [&](int64_t i) {
    const auto pack = load<kWidth>(x + i);
    for (const float value : pack.values) {
      sum += value;
    }
  });
  return sum;
}

// Squares of the differences to the mean: those of x itself would lose a small variance beside it.
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline float centered_square_sum(const T* x, float mean, int64_t n,
                                                   const Member& member) {
  float sum = 0;
  for_own_packs<kWidth>(member, n, [&](int64_t i) {
    const auto pack = load<kWidth>(x + i);
    for (const float value : pack.values) {
      sum += (value - mean) * (value - mean);
    }
  });
  return sum;
}

template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline void center_and_scale(const T* x, const T* w, const T* b, float mean,
                                               float rstd, T* y, int64_t n, const Member& member) {
  for_own_packs<kWidth>(member, n, [&](int64_t i) {
    const auto in = load<kWidth>(x + i);
    const auto weight = load<kWidth>(w + i);
    const auto bias = load<kWidth>(b + i);
    Floats<kWidth> out;
    for (int j = 0; j < kWidth; ++j) {
      out.values[j] = (in.values[j] - mean) * rstd * weight.values[j] + bias.values[j];
    }
    store<kWidth>(out, y + i);
  });
}

// Sums along a row: of dy * w, and of dy * w * (x - mean) * rstd.
struct RowGradients {
  float along_one = 0;
  float along_x = 0;

  FSDP2_HOST_DEVICE RowGradients operator+(const RowGradients& other) const {
    return {along_one + other.along_one, along_x + other.along_x};
  }
};

template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline RowGradients gradients_along_row(const T* dy, const T* x, const T* w,
                                                          float mean, float rstd, int64_t n,
                                                          const Member& member) {
  RowGradients sum;
  for_own_packs<kWidth>(member, n, [&](int64_t i) {
    const auto d = load<kWidth>(dy + i);
    const auto in = load<kWidth>(x + i);
    const auto weight = load<kWidth>(w + i);
    for (int j = 0; j < kWidth; ++j) {
      const float scaled = d.values[j] * weight.values[j];
      sum.along_one += scaled;
      sum.along_x += scaled * (in.values[j] - mean) * rstd;
    }
  });
  return sum;
}

// dx, unless it is null, and sums [2,n] += dy * (x - mean) * rstd, for dw, and dy, for db; a member
// has the same elements of them in each row. along: what gradients_along_row makes of all members.
// dx_besides, unless it is null, is added to dx.
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline void layer_norm_gradients(const T* dy, const T* x, const T* w, float mean,
                                                   float rstd, const RowGradients& along,
                                                   const T* dx_besides, T* dx, float* sums,
                                                   int64_t n, const Member& member) {
  const float mean_along_one = along.along_one / static_cast<float>(n);
  const float mean_along_x = along.along_x / static_cast<float>(n);
  for_own_packs<kWidth>(member, n, [&](int64_t i) {
    const auto d = load<kWidth>(dy + i);
    const auto in = load<kWidth>(x + i);
    auto dw = load<kWidth>(sums + i);
    auto db = load<kWidth>(sums + n + i);
    Floats<kWidth> normed;
    for (int j = 0; j < kWidth; ++j) {
      normed.values[j] = (in.values[j] - mean) * rstd;
      dw.values[j] += d.values[j] * normed.values[j];
      db.values[j] += d.values[j];
    }
    store<kWidth>(dw, sums + i);
    store<kWidth>(db, sums + n + i);
    if (dx != nullptr) {
      const auto weight = load<kWidth>(w + i);
      auto out = load_or_zero<kWidth>(dx_besides, i);
      for (int j = 0; j < kWidth; ++j) {
        const float along_row = mean_along_one + normed.values[j] * mean_along_x;
        out.values[j] += rstd * (d.values[j] * weight.values[j] - along_row);
      }
      store<kWidth>(out, dx + i);
    }
  });
}

}  // namespace fsdp2::cuda
