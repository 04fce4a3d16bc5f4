// The rotary embedding out of plain operators, as transformers writes it.
#pragma once

#include <ATen/ATen.h>

namespace fsdp2 {

// q * cos + rotate_half(q) * sin with full-width cos and sin. x [B,S,H,E]; cos and sin [S,E/2] or
// [B,S,E/2].
inline at::Tensor plain_rotation(const at::Tensor& x, const at::Tensor& cos,
                                 const at::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor rotated_half = at::cat({-x.slice(-1, half), x.slice(-1, 0, half)}, -1);
  return x * at::cat({cos, cos}, -1).unsqueeze(-2) +
         rotated_half * at::cat({sin, sin}, -1).unsqueeze(-2);
}

}  // namespace fsdp2
