#include "core/cuda/kernels/square_sum.h"

#include "core/cuda/kernels/elements.h"
#include "core/cuda/kernels/launch.h"

namespace fsdp2::cuda {

namespace {

constexpr int kWarps = kThreads / kWarp;

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    square_sum_kernel(const __grid_constant__ TensorChunks<T> tensors, double* sums) {
  __shared__ double of_warps[kWarps];
  const Member member{static_cast<int>(threadIdx.x), kThreads};
  const double sum =
      of_team<kWarps>(chunk_square_sum<kWidth>(tensors, blockIdx.x, member), of_warps, Sum());
  if (member.number == 0) {
    sums[blockIdx.x] = sum;
  }
}

}  // namespace

template <typename T>
void launch_square_sums(const TensorChunks<T>& tensors, double* sums, cudaStream_t stream) {
  const int64_t chunks = tensors.table.chunks();
  if (chunks > 0) {
    square_sum_kernel<kPackWidth<T>>
        <<<static_cast<unsigned>(chunks), kThreads, 0, stream>>>(tensors, sums);
  }
}

#define FSDP2_INSTANTIATE(T) \
  template void launch_square_sums(const TensorChunks<T>&, double*, cudaStream_t);
FSDP2_FOR_EACH_ELEMENT(FSDP2_INSTANTIATE)
#undef FSDP2_INSTANTIATE

}  // namespace fsdp2::cuda
