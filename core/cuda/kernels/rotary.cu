#include "core/cuda/kernels/rotary.h"

#include <algorithm>

#include "core/cuda/kernels/elements.h"
#include "core/cuda/kernels/launch.h"

namespace fsdp2::cuda {

namespace {

// A block for each token.
template <int kWidth, typename T, typename Angle>
__global__ void __launch_bounds__(kThreads)
    rotate_kernel(const T* x, const Angle* cos, const Angle* sin, float sign, T* y,
                  HeadShape shape) {
  const int packs = packs_of_token(shape, kWidth);
  for (int index = threadIdx.x; index < packs; index += blockDim.x) {
    rotate<kWidth>(x, cos, sin, sign, y, shape, blockIdx.x, index);
  }
}

}  // namespace

template <typename T, typename Angle>
void launch_rotate(const T* x, const Angle* cos, const Angle* sin, bool inverse, T* y,
                   int64_t tokens, const HeadShape& shape, cudaStream_t stream) {
  if (tokens * packs_of_token(shape, 1) == 0) {
    return;
  }
  const bool in_packs = shape.half % kPackWidth<T> == 0 && on_pack_borders(x, cos, sin, y);
  with_width<T>(in_packs, [&](auto width) {
    const int threads = std::min(kThreads, whole_warps(packs_of_token(shape, width)));
    rotate_kernel<width><<<static_cast<unsigned>(tokens), threads, 0, stream>>>(
        x, cos, sin, inverse ? -1.0F : 1.0F, y, shape);
  });
}

#define FSDP2_INSTANTIATE(T, Angle)                                                    \
  template void launch_rotate(const T*, const Angle*, const Angle*, bool, T*, int64_t, \
                              const HeadShape&, cudaStream_t);
FSDP2_INSTANTIATE(float, float)
FSDP2_INSTANTIATE(__nv_bfloat16, float)
FSDP2_INSTANTIATE(__nv_bfloat16, __nv_bfloat16)
FSDP2_INSTANTIATE(__half, float)
FSDP2_INSTANTIATE(__half, __half)
#undef FSDP2_INSTANTIATE

}  // namespace fsdp2::cuda
