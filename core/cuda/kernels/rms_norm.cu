#include "core/cuda/kernels/rms_norm.h"

#include "core/cuda/kernels/column_sum.h"
#include "core/cuda/kernels/elements.h"
#include "core/cuda/kernels/norm_teams.h"
#include "core/cuda/math/rms_norm_math.h"

namespace fsdp2::cuda {

namespace {

template <int kWidth, int kWarps, typename T>
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(const T* x, Residual<T> residual, const T* w, float eps, T* y, float* rstd,
                    int64_t rows, int64_t n) {
  __shared__ float of_warps[kWarps];
  const int64_t row = Teams<kWarps>::in_grid();
  if (row >= rows) {
    return;
  }
  const Member member = Teams<kWarps>::member();
  const T* x_row = summed_row<kWidth>(x, residual, row * n, n, member);
  const float sum = of_team<kWarps>(square_sum<kWidth>(x_row, n, member), of_warps, Sum());
  const float factor = rstd_of(sum, n, eps);
  normalize<kWidth>(x_row, w, factor, y + row * n, n, member);
  if (member.number == 0) {
    rstd[row] = factor;
  }
}

template <int kWidth, int kWarps, typename T>
__global__ void __launch_bounds__(kThreads)
    rms_norm_gradients_kernel(const T* dy, const T* x, const T* w, const float* rstd,
                              const T* dx_besides, T* dx, float* dw_parts, int parts, int64_t rows,
                              int64_t n, bool in_shared_memory) {
  __shared__ float of_warps[kWarps];
  const int64_t part = Teams<kWarps>::in_grid();
  if (part >= parts) {
    return;
  }
  const Member member = Teams<kWarps>::member();
  add_up_part<kWidth, kWarps, /*kSums=*/1>(
      dw_parts + part * n, in_shared_memory, part, parts, rows, n, [&](int64_t row, float* dw_sum) {
        const int64_t at = row * n;
        const float sum = of_team<kWarps>(gradient_along_row<kWidth>(dy + at, x + at, w, n, member),
                                          of_warps, Sum());
        norm_gradients<kWidth>(dy + at, x + at, w, rstd[row], sum,
                               dx_besides != nullptr ? dx_besides + at : nullptr,
                               dx != nullptr ? dx + at : nullptr, dw_sum, n, member);
      });
}

}  // namespace

template <typename T>
void launch_rms_norm(const T* x, const Residual<T>& residual, const T* w, float eps, T* y,
                     float* rstd, int64_t rows, int64_t n, cudaStream_t stream) {
  if (rows == 0) {
    return;
  }
  with_team<T>(n, on_pack_borders(x, residual.addend, residual.sum, w, y),
               [&](auto width, auto warps) {
                 rms_norm_kernel<width, warps>
                     <<<blocks_for(rows, kWarpsOfBlock / warps), kThreads, 0, stream>>>(
                         x, residual, w, eps, y, rstd, rows, n);
               });
}

int rms_norm_parts(int64_t rows, int64_t n) { return norm_parts(rows, n); }

template <typename T>
void launch_rms_norm_gradients(const T* dy, const T* x, const T* w, const float* rstd,
                               const T* dx_besides, T* dx, T* dw, float* dw_parts, int64_t rows,
                               int64_t n, cudaStream_t stream) {
  if (n == 0) {
    return;
  }
  const int parts = rms_norm_parts(rows, n);
  with_team<T>(n, on_pack_borders(dy, x, w, dx_besides, dx, dw_parts), [&](auto width, auto warps) {
    const TeamSums sums = team_sums(n, warps);
    if (parts > 0) {
      rms_norm_gradients_kernel<width, warps>
          <<<blocks_for(parts, sums.teams), sums.teams * warps * kWarp, sums.shared_bytes,
             stream>>>(dy, x, w, rstd, dx_besides, dx, dw_parts, parts, rows, n,
                       sums.in_shared_memory);
    }
  });
  launch_sum_of_parts<T>(dw_parts, parts, n, dw, n, nullptr, stream);
}

#define FSDP2_INSTANTIATE(T)                                                                    \
  template void launch_rms_norm(const T*, const Residual<T>&, const T*, float, T*, float*,      \
                                int64_t, int64_t, cudaStream_t);                                \
  template void launch_rms_norm_gradients(const T*, const T*, const T*, const float*, const T*, \
                                          T*, T*, float*, int64_t, int64_t, cudaStream_t);
FSDP2_FOR_EACH_ELEMENT(FSDP2_INSTANTIATE)
#undef FSDP2_INSTANTIATE

}  // namespace fsdp2::cuda
