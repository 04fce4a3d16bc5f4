// The rotation of the halves of heads by the angles of their positions, a pack at a time. Backwards
// is the rotation by the negative angles.
#pragma once

#include "core/cuda/math/pack.h"

namespace fsdp2::cuda {

// x [B,S,H,2*half] with cos and sin [S,half].
struct HeadShape {
  int64_t positions;  // S
  int heads;          // H
  int half;
};

FSDP2_HOST_DEVICE inline int packs_of_token(const HeadShape& shape, int width) {
  return shape.heads * (shape.half / width);
}

// For one token, the `index`-th pack of the first halves of its heads, and the pack of the second
// half that turns with it: (y1, y2) = (x1 cos - x2 sin, x2 cos + x1 sin), with sin times `sign`.
// half is a multiple of kWidth; a token has packs_of_token(shape, kWidth) of these.
template <int kWidth, typename T, typename Angle>
FSDP2_HOST_DEVICE inline void rotate(const T* x, const Angle* cos, const Angle* sin, float sign,
                                     T* y, const HeadShape& shape, int64_t token, int index) {
  const int packs = shape.half / kWidth;
  const int column = index % packs * kWidth;
  const int64_t angle = token % shape.positions * shape.half + column;
  const int64_t head = token * shape.heads + index / packs;
  const int64_t first = head * 2 * shape.half + column;
  const auto x1 = load<kWidth>(x + first);
  const auto x2 = load<kWidth>(x + first + shape.half);
  const auto c = load<kWidth>(cos + angle);
  const auto s = load<kWidth>(sin + angle);
  Floats<kWidth> y1;
  Floats<kWidth> y2;
  for (int i = 0; i < kWidth; ++i) {
    const float turn = sign * s.values[i];
    y1.values[i] = x1.values[i] * c.values[i] - x2.values[i] * turn;
    y2.values[i] = x2.values[i] * c.values[i] + x1.values[i] * turn;
  }
  store<kWidth>(y1, y + first);
  store<kWidth>(y2, y + first + shape.half);
}

}  // namespace fsdp2::cuda
