// LibTorch's memory for large tensors on the CPU, kept from one step to the next (PageHeap).
//
// For the whole process, ranks that are threads included: a block may be freed by any thread, and
// whenever, also after keeping has ended. Small blocks and those that the system has no pages for
// are the affair of the allocator that LibTorch had before, whose errors are as they were.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>

namespace fsdp2::memory {

// Smaller blocks are left to the allocator before, which keeps them by itself.
constexpr size_t kLargeBytes = size_t{1} << 20;

// On: memory of large tensors that are freed is kept for others, as much as was in use at once.
// Off, as a process begins: what is kept goes back to the system, and what is freed later too.
// Errors: kUnsupported where another library has given LibTorch an allocator that ours cannot stand
// before.
void keep_memory(bool on);

// As at::zeros_like. Pages fresh from the system are zeros: large tensors on the host of such pages
// are not written before they are used.
at::Tensor zeros_like(const at::Tensor& like, at::ScalarType dtype);

struct KeptMemory {
  bool is_on = false;
  size_t in_use = 0;  // bytes of large tensors made while memory was kept
  size_t kept = 0;    // freed, and not with the system
};

KeptMemory kept_memory();

}  // namespace fsdp2::memory
