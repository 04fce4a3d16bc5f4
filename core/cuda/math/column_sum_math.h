// Sums of the columns of parts [count,n] fp32, the second stage of a sum over many rows. A few
// members share a column: each adds its parts in turn, and the first adds these sums in order.
#pragma once

#include "core/cuda/math/row_team.h"

namespace fsdp2::cuda {

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
