#include "core/cuda/kernels/cross_entropy.h"

#include "core/cuda/kernels/elements.h"
#include "core/cuda/kernels/launch.h"
#include "core/cuda/kernels/total.h"
#include "core/cuda/math/cross_entropy_math.h"

namespace fsdp2::cuda {

// For of_team.
__device__ inline ExpSum from_lane_above(const ExpSum& value, int lanes) {
  return {from_lane_above(value.max, lanes), from_lane_above(value.sum, lanes)};
}

namespace {

constexpr int kWarpsOfRow = 16;
constexpr int kThreadsOfRow = kWarpsOfRow * kWarp;

// A block for each row.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreadsOfRow)
    cross_entropy_kernel(T* logits, const int64_t* labels, bool want_gradient, float scale,
                         const float* scale_of_row, double* losses, int64_t n) {
  __shared__ ExpSum of_warps[kWarpsOfRow];
  const Member member{static_cast<int>(threadIdx.x), kThreadsOfRow};
  const int64_t row = blockIdx.x;
  T* x = logits + row * n;
  if (scale_of_row != nullptr) {
    scale = scale_of_row[row];
    if (scale == 0) {
      if (want_gradient) {
        clear_row<kWidth>(x, n, member);
      }
      if (member.number == 0) {
        losses[row] = 0;
      }
      return;
    }
  }
  const int64_t label = labels[row];
  const bool known = is_label(label, n);
  // Before the team's sum: behind it, others may overwrite the row.
  const float picked = known ? static_cast<float>(x[label]) : nanf("");
  ExpSum all = of_team<kWarpsOfRow>(exp_sum<kWidth>(x, n, member), of_warps, JoinExpSums());
  if (!known) {
    all.sum = nanf("");
  }
  if (member.number == 0) {
    losses[row] = row_loss(all, picked);
  }
  if (want_gradient) {
    make_gradient<kWidth>(x, n, all, label, scale, member);
  }
}

}  // namespace

template <typename T>
void launch_cross_entropy(T* logits, const int64_t* labels, bool want_gradient, float scale,
                          const float* scale_of_row, double* losses, double* loss, int64_t rows,
                          int64_t n, cudaStream_t stream) {
  if (rows > 0) {
    cross_entropy_kernel<kPackWidth<T>><<<static_cast<unsigned>(rows), kThreadsOfRow, 0, stream>>>(
        logits, labels, want_gradient, scale, scale_of_row, losses, n);
  }
  launch_total(losses, rows, loss, stream);
}

#define FSDP2_INSTANTIATE(T)                                                                 \
  template void launch_cross_entropy(T*, const int64_t*, bool, float, const float*, double*, \
                                     double*, int64_t, int64_t, cudaStream_t);
FSDP2_FOR_EACH_ELEMENT(FSDP2_INSTANTIATE)
#undef FSDP2_INSTANTIATE

}  // namespace fsdp2::cuda
