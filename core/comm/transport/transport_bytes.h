// The bytes of tensors that the ranks of this process have received from others. The transports
// between processes count them where they arrive (for Gloo, where they are requested). CommCounters
// go by the sizes of the collectives' tensors; tests compare the two.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstring>

namespace fsdp2 {

// Any thread.
int64_t transport_bytes_received();
void count_transport_bytes(int64_t bytes);

// Bytes of the elements of a contiguous tensor.
inline int64_t bytes_in(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

// The two may be null where there are no bytes, and equal: a gather's input may be its own place in
// the output.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace fsdp2
