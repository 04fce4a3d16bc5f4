// The memory of a collective's input or output, which a stream may still use after the host has
// dropped it.
//
// Freed memory goes to whoever asks next on the stream that it was allocated on. If another stream
// used it last, the first must wait for that use:
//
//   BufferInFlight buffer(at::empty(...));   // belongs to the stream that is current now
//   ...                                      // a collective, then a copy on the compute stream
//   buffer.mark_used();                      // the event behind what is in this stream so far
//   buffer.release();                        // its own stream waits for the event; the memory goes
//
// The host has no streams: there is no event there, and the memory goes at once. Movable; one
// thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>

namespace fsdp2::fsdp {

class BufferInFlight {
 public:
  BufferInFlight() = default;
  // tensor: allocated on the current stream of its device.
  explicit BufferInFlight(at::Tensor tensor);
  ~BufferInFlight();
  BufferInFlight(BufferInFlight&& other) noexcept;
  BufferInFlight& operator=(BufferInFlight&& other) noexcept;

  const at::Tensor& tensor() const { return tensor_; }
  // Puts the event behind all that the current stream has been given. The last call counts.
  void mark_used();
  // Also at its end. No-op if there is no memory.
  void release();

 private:
  at::Tensor tensor_;
  std::optional<c10::Stream> own_stream_;  // none on the host
  std::optional<c10::Event> used_;         // none before mark_used
};

}  // namespace fsdp2::fsdp
