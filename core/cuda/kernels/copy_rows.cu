#include "core/cuda/kernels/copy_rows.h"

#include "core/cuda/kernels/elements.h"
#include "core/cuda/kernels/launch.h"

namespace fsdp2::cuda {

namespace {

template <typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    copy_rows_kernel(const __grid_constant__ RowCopies<From, To> copies) {
  copy_chunk(copies, blockIdx.x, {static_cast<int>(threadIdx.x), kThreads});
}

}  // namespace

template <typename From, typename To>
void launch_copy_rows(const RowCopies<From, To>& copies, cudaStream_t stream) {
  if (copies.table.chunks() > 0) {
    copy_rows_kernel<<<static_cast<unsigned>(copies.table.chunks()), kThreads, 0, stream>>>(copies);
  }
}

#define FSDP2_INSTANTIATE_TO(From, To) \
  template void launch_copy_rows(const RowCopies<From, To>&, cudaStream_t);
#define FSDP2_INSTANTIATE(From)             \
  FSDP2_INSTANTIATE_TO(From, float)         \
  FSDP2_INSTANTIATE_TO(From, __nv_bfloat16) \
  FSDP2_INSTANTIATE_TO(From, __half)
FSDP2_FOR_EACH_ELEMENT(FSDP2_INSTANTIATE)
#undef FSDP2_INSTANTIATE
#undef FSDP2_INSTANTIATE_TO

}  // namespace fsdp2::cuda
