// Arithmetic that is compiled for the device and, so that it can be tested without one, for the
// host. What a device has instructions of its own for is in one place, here: a host test cannot see
// these.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define FSDP2_HOST_DEVICE __host__ __device__
#else
#define FSDP2_HOST_DEVICE
#endif

namespace fsdp2::cuda {

// Within 2 ulp on a device, and 0 for x above 2^126 there.
FSDP2_HOST_DEVICE inline float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  return __fdividef(1.0F, x);
#else
  return 1.0F / x;
#endif
}

}  // namespace fsdp2::cuda
