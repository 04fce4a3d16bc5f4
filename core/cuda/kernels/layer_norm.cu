#include "core/cuda/kernels/layer_norm.h"

#include "core/cuda/kernels/column_sum.h"
#include "core/cuda/kernels/elements.h"
#include "core/cuda/kernels/norm_teams.h"
#include "core/cuda/math/layer_norm_math.h"
#include "core/cuda/math/rms_norm_math.h"

namespace fsdp2::cuda {

// For of_team.
__device__ inline RowGradients from_lane_above(const RowGradients& value, int lanes) {
  return {from_lane_above(value.along_one, lanes), from_lane_above(value.along_x, lanes)};
}
__device__ inline RowGradients from_first_lane(const RowGradients& value) {
  return {from_first_lane(value.along_one), from_first_lane(value.along_x)};
}

namespace {

constexpr int kSums = 2;  // of a part: for dw and for db

template <int kWidth, int kWarps, typename T>
__global__ void __launch_bounds__(kThreads)
    layer_norm_kernel(const T* x, Residual<T> residual, const T* w, const T* b, float eps, T* y,
                      float* means, float* rstds, int64_t rows, int64_t n) {
  __shared__ float of_warps[kWarps];
  const int64_t row = Teams<kWarps>::in_grid();
  if (row >= rows) {
    return;
  }
  const Member member = Teams<kWarps>::member();
  const T* x_row = summed_row<kWidth>(x, residual, row * n, n, member);
  const float sum = of_team<kWarps>(row_sum<kWidth>(x_row, n, member), of_warps, Sum());
  const float mean = sum / static_cast<float>(n);
  const float squares =
      of_team<kWarps>(centered_square_sum<kWidth>(x_row, mean, n, member), of_warps, Sum());
  const float rstd = rstd_of(squares, n, eps);
  center_and_scale<kWidth>(x_row, w, b, mean, rstd, y + row * n, n, member);
  if (member.number == 0) {
    means[row] = mean;
    rstds[row] = rstd;
  }
}

template <int kWidth, int kWarps, typename T>
__global__ void __launch_bounds__(kThreads)
    layer_norm_gradients_kernel(const T* dy, const T* x, const T* w, const float* mean,
                                const float* rstd, const T* dx_besides, T* dx, float* parts,
                                int count, int64_t rows, int64_t n, bool in_shared_memory) {
  __shared__ RowGradients of_warps[kWarps];
  const int64_t part = Teams<kWarps>::in_grid();
  if (part >= count) {
    return;
  }
  const Member member = Teams<kWarps>::member();
  add_up_part<kWidth, kWarps, kSums>(
      parts + part * kSums * n, in_shared_memory, part, count, rows, n,
      [&](int64_t row, float* sums) {
        const int64_t at = row * n;
        const RowGradients along = of_team<kWarps>(
            gradients_along_row<kWidth>(dy + at, x + at, w, mean[row], rstd[row], n, member),
            of_warps, Sum());
        layer_norm_gradients<kWidth>(dy + at, x + at, w, mean[row], rstd[row], along,
                                     dx_besides != nullptr ? dx_besides + at : nullptr,
                                     dx != nullptr ? dx + at : nullptr, sums, n, member);
      });
}

}  // namespace

template <typename T>
void launch_layer_norm(const T* x, const Residual<T>& residual, const T* w, const T* b, float eps,
                       T* y, float* mean, float* rstd, int64_t rows, int64_t n,
                       cudaStream_t stream) {
  if (rows == 0) {
    return;
  }
  with_team<T>(n, on_pack_borders(x, residual.addend, residual.sum, w, b, y),
               [&](auto width, auto warps) {
                 layer_norm_kernel<width, warps>
                     <<<blocks_for(rows, kWarpsOfBlock / warps), kThreads, 0, stream>>>(
                         x, residual, w, b, eps, y, mean, rstd, rows, n);
               });
}

int layer_norm_parts(int64_t rows, int64_t n) { return norm_parts(rows, n); }

template <typename T>
void launch_layer_norm_gradients(const T* dy, const T* x, const T* w, const float* mean,
                                 const float* rstd, const T* dx_besides, T* dx, T* dw, T* db,
                                 float* parts, int64_t rows, int64_t n, cudaStream_t stream) {
  if (n == 0) {
    return;
  }
  const int count = layer_norm_parts(rows, n);
  with_team<T>(n, on_pack_borders(dy, x, w, dx_besides, dx, parts), [&](auto width, auto warps) {
    const TeamSums sums = team_sums(kSums * n, warps);
    if (count > 0) {
      layer_norm_gradients_kernel<width, warps>
          <<<blocks_for(count, sums.teams), sums.teams * warps * kWarp, sums.shared_bytes,
             stream>>>(dy, x, w, mean, rstd, dx_besides, dx, parts, count, rows, n,
                       sums.in_shared_memory);
    }
  });
  launch_sum_of_parts(parts, count, kSums * n, dw, n, db, stream);
}

#define FSDP2_INSTANTIATE(T)                                                                     \
  template void launch_layer_norm(const T*, const Residual<T>&, const T*, const T*, float, T*,   \
                                  float*, float*, int64_t, int64_t, cudaStream_t);               \
  template void launch_layer_norm_gradients(const T*, const T*, const T*, const float*,          \
                                            const float*, const T*, T*, T*, T*, float*, int64_t, \
                                            int64_t, cudaStream_t);
FSDP2_FOR_EACH_ELEMENT(FSDP2_INSTANTIATE)
#undef FSDP2_INSTANTIATE

}  // namespace fsdp2::cuda
