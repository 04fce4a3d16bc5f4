// The sum of fp64 numbers in an order that depends on their count alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace fsdp2::cuda {

void launch_total(const double* values, int64_t count, double* total, cudaStream_t stream);

}  // namespace fsdp2::cuda
