#include "core/cuda/kernels/silu_multiply.h"

#include "core/cuda/kernels/elements.h"
#include "core/cuda/kernels/launch.h"
#include "core/cuda/math/silu_multiply_math.h"

namespace fsdp2::cuda {

namespace {

template <int kWidth>
__device__ int64_t own_pack() {
  return (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    silu_multiply_kernel(const T* gate, const T* up, T* y, int64_t n) {
  silu_multiply<kWidth>(gate, up, y, own_pack<kWidth>(), n);
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    silu_multiply_gradients_kernel(const T* dy, const T* gate, const T* up, T* dgate, T* dup,
                                   int64_t n) {
  silu_multiply_gradients<kWidth>(dy, gate, up, dgate, dup, own_pack<kWidth>(), n);
}

}  // namespace

template <typename T>
void launch_silu_multiply(const T* gate, const T* up, T* y, int64_t n, cudaStream_t stream) {
  if (n == 0) {
    return;
  }
  with_width<T>(on_pack_borders(gate, up, y), [&](auto width) {
    silu_multiply_kernel<width>
        <<<blocks_for(n, kThreads * width), kThreads, 0, stream>>>(gate, up, y, n);
  });
}

template <typename T>
void launch_silu_multiply_gradients(const T* dy, const T* gate, const T* up, T* dgate, T* dup,
                                    int64_t n, cudaStream_t stream) {
  if (n == 0) {
    return;
  }
  with_width<T>(on_pack_borders(dy, gate, up, dgate, dup), [&](auto width) {
    silu_multiply_gradients_kernel<width>
        <<<blocks_for(n, kThreads * width), kThreads, 0, stream>>>(dy, gate, up, dgate, dup, n);
  });
}

#define FSDP2_INSTANTIATE(T)                                                                  \
  template void launch_silu_multiply(const T*, const T*, T*, int64_t, cudaStream_t);          \
  template void launch_silu_multiply_gradients(const T*, const T*, const T*, T*, T*, int64_t, \
                                               cudaStream_t);
FSDP2_FOR_EACH_ELEMENT(FSDP2_INSTANTIATE)
#undef FSDP2_INSTANTIATE

}  // namespace fsdp2::cuda
