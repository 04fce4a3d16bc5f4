// The bytes of tensors that the ranks of this process have received from others. The transports
// between processes count them where they arrive (for Gloo, where they are requested). CommCounters
// go by the sizes of the collectives' tensors; tests compare the two.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fsdp2 {

// Any thread.
int64_t transport_bytes_received();
void count_transport_bytes(int64_t bytes);

// Bytes of the elements of a contiguous tensor.
inline int64_t bytes_in(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

}  // namespace fsdp2
