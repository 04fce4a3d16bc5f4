// Counts the memory of CPU tensors: exactly what is alive, not what the process holds.
#pragma once

#include <cstdint>

namespace fsdp2 {

// The bytes of tensors allocated since the first call in this process; so call it once before
// anything that is to be counted.
int64_t live_bytes();

// The largest live_bytes() since this was made.
class PeakBytes {
 public:
  PeakBytes();
  int64_t get() const;
};

}  // namespace fsdp2
