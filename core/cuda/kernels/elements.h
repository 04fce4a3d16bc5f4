// The types of elements on a device. CUDA's own stand for LibTorch's of the same bits, so that
// device code needs no headers of LibTorch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Calls instantiate(T) for each.
#define FSDP2_FOR_EACH_ELEMENT(instantiate) \
  instantiate(float) instantiate(__nv_bfloat16) instantiate(__half)
