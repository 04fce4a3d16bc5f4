// Gives copy_rows_math.h to a stream, for each two types of elements.h.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/math/copy_rows_math.h"

namespace fsdp2::cuda {

template <typename From, typename To>
void launch_copy_rows(const RowCopies<From, To>& copies, cudaStream_t stream);

}  // namespace fsdp2::cuda
