// Bytes of tensors that the ranks of this process have received from others, counted by the
// transports between processes where they arrive (Gloo: where they are asked of it). CommCounters
// go by the sizes of the collectives' tensors; this is what they are held to.
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
