#include "core/cuda/kernels/total.h"

#include "core/cuda/math/row_team.h"

namespace fsdp2::cuda {

namespace {

constexpr int kWarps = 32;

// One block.
__global__ void __launch_bounds__(kWarps* kWarp)
    total_kernel(const double* values, int64_t count, double* total) {
  __shared__ double of_warps[kWarps];
  double sum = 0;
  for_own_packs<1>({static_cast<int>(threadIdx.x), kWarps * kWarp}, count,
                   [&](int64_t i) { sum += values[i]; });
  sum = of_team<kWarps>(sum, of_warps, Sum());
  if (threadIdx.x == 0) {
    *total = sum;
  }
}

}  // namespace

void launch_total(const double* values, int64_t count, double* total, cudaStream_t stream) {
  total_kernel<<<1, kWarps * kWarp, 0, stream>>>(values, count, total);
}

}  // namespace fsdp2::cuda
