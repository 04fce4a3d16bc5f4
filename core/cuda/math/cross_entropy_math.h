// The cross-entropy of a row of logits, logsumexp(row) - row[label], and its gradient in the row's
// own memory: what each member of the row's team does.
#pragma once

#include <cmath>
#include <limits>

#include "core/cuda/math/pack.h"
#include "core/cuda/math/row_team.h"

namespace fsdp2::cuda {

// The sum of e^(x - max) over some x, of which max is the largest.
struct ExpSum {
  // No x yet. Finite, so that -inf counts for nothing from the beginning.
  float max = -std::numeric_limits<float>::max();
  float sum = 0;
};

// NaN stays in the sum, whatever fmaxf does with it.
struct JoinExpSums {
  FSDP2_HOST_DEVICE ExpSum operator()(const ExpSum& a, const ExpSum& b) const {
    const float max = fmaxf(a.max, b.max);
    return {max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
  }
};

template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline ExpSum exp_sum(const T* x, int64_t n, const Member& member) {
  ExpSum all;
  for_own_parts<kWidth>(member, x, n, [&](auto width, int64_t i) {
    const auto pack = load<width>(x + i);
    float max = all.max;
    for (const float value : pack.values) {
      max = fmaxf(max, value);
    }
    float sum = all.sum * expf(all.max - max);
    for (const float value : pack.values) {
      sum += expf(value - max);
    }
    all = {max, sum};
  });
  return all;
}

FSDP2_HOST_DEVICE inline bool is_label(int64_t label, int64_t n) { return label >= 0 && label < n; }

// picked: the logit of the label.
FSDP2_HOST_DEVICE inline double row_loss(const ExpSum& all, float picked) {
  return log(static_cast<double>(all.sum)) + static_cast<double>(all.max) -
         static_cast<double>(picked);
}

// x = scale * (softmax(x) - onehot(label)).
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline void make_gradient(T* x, int64_t n, const ExpSum& all, int64_t label,
                                            float scale, const Member& member) {
  const float factor = scale / all.sum;
  for_own_parts<kWidth>(member, x, n, [&](auto width, int64_t i) {
    auto pack = load<width>(x + i);
    for (int j = 0; j < width; ++j) {
      const float share = expf(pack.values[j] - all.max) * factor;
      pack.values[j] = i + j == label ? share - scale : share;
    }
    store<width>(pack, x + i);
  });
}

// x = 0.
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline void clear_row(T* x, int64_t n, const Member& member) {
  for_own_parts<kWidth>(member, x, n,
                        [&](auto width, int64_t i) { store<width>(Floats<width>{}, x + i); });
}

}  // namespace fsdp2::cuda
