// Sums of the columns of a matrix, in two stages: parts of the rows first, then the sums of these
// parts [count,n] fp32. In each a few members share a column: each adds its rows in turn, and the
// first adds these sums in order.
#pragma once

#include "core/cuda/math/pack.h"
#include "core/cuda/math/row_team.h"

namespace fsdp2::cuda {

// The sum over rows first, first + step, ... of the pack of x [rows,n] that begins at `column`.
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline Floats<kWidth> sum_of_own_rows(const T* x, int64_t rows, int64_t n,
                                                        int64_t column, int64_t first,
                                                        int64_t step) {
  Floats<kWidth> sum{};
  for (int64_t row = first; row < rows; row += step) {
    const auto in = load<kWidth>(x + row * n + column);
    for (int i = 0; i < kWidth; ++i) {
      sum.values[i] += in.values[i];
    }
  }
  return sum;
}

FSDP2_HOST_DEVICE inline float sum_of_own_parts(const float* parts, int count, int64_t n,
                                                int64_t column, const Member& member) {
  float sum = 0;
  for (int part = member.number; part < count; part += member.of) {
    sum += parts[part * n + column];
  }
  return sum;
}

// sums: of the members, `stride` floats apart.
FSDP2_HOST_DEVICE inline float sum_of_members(const float* sums, int members, int stride) {
  float sum = 0;
  for (int member = 0; member < members; ++member) {
    sum += sums[member * stride];
  }
  return sum;
}

}  // namespace fsdp2::cuda
