// Bytes of tensors that the ranks of this process have received from others, counted by the
// transports between processes where they arrive (Gloo: where they are asked of it). CommCounters
// go by the sizes of the collectives' tensors; this is what they are held to.
#pragma once

#include <cstdint>

namespace fsdp2 {

// Any thread.
int64_t transport_bytes_received();
void count_transport_bytes(int64_t bytes);

}  // namespace fsdp2
