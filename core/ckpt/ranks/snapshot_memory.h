// The memory that a save in the background copies into: kept from save to save, and made ahead on
// request. Fresh memory takes longer than the copy itself, as the kernel maps and zeroes each page
// when it is first written to; so a thread of its own writes to each once. One thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <thread>

namespace fsdp2::ckpt {

class SnapshotMemory {
 public:
  SnapshotMemory() = default;
  // Waits for the thread.
  ~SnapshotMemory();
  SnapshotMemory(const SnapshotMemory&) = delete;
  SnapshotMemory& operator=(const SnapshotMemory&) = delete;

  // Room for `bytes`, the first `expected` of which are made ready; the rest costs addresses only.
  // Does not wait for that. Nothing to do if there is as much room already. Errors: kOutOfMemory.
  void reserve(int64_t bytes, int64_t expected);

  // uint8 [n >= bytes] with any values. Waits for what reserve has begun. Errors: kOutOfMemory.
  const at::Tensor& take(int64_t bytes);

 private:
  bool has_room(int64_t bytes) const { return memory_.defined() && memory_.numel() >= bytes; }
  void make(int64_t bytes);
  void wait();

  at::Tensor memory_;
  std::thread toucher_;
};

}  // namespace fsdp2::ckpt
