// The streams that a tree's communication runs on, beside the one that its modules compute on.
//
//   streams.reduce.follow_current();               // comes after the gradients
//   {
//     const auto entered = streams.reduce.enter();  // the current stream from here on
//     ...                                          // a reduction
//     reduced.put(device);
//   }
//   ...                                            // computes in the meantime
//   reduced.make_current_wait();                   // comes after the reduction
//
// Memory belongs to the stream that was current when it was allocated: once the host drops it, that
// stream's next allocation may get it. So whoever drops what another stream has used last lets the
// owner follow that use. That is all it takes: no tensor is told of streams, and the host waits
// only for what it reads itself.
//
// The host has no streams: what it is told to do is done when the call returns. There, and on a
// default-made stream, all of this does nothing. One thread at a time.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <optional>

namespace fsdp2::fsdp {

// A place in the work of a stream, which others may wait for.
class StreamMark {
 public:
  // Behind all that the current stream of the device has been given. The last call counts.
  void put(at::Device device);
  // What the stream is given from here on comes after the mark. No-op before put.
  void make_wait(c10::Stream stream) const;
  void make_current_wait() const;
  // The host waits for all before the mark.
  void wait_on_host() const;

 private:
  std::optional<c10::Event> event_;
};

class SideStream {
 public:
  SideStream() = default;
  explicit SideStream(at::Device device);

  // What it is given from here on comes after all that the current stream has been given.
  void follow_current() const;
  // Makes it the current stream, until the guard ends.
  [[nodiscard]] c10::OptionalStreamGuard enter() const { return c10::OptionalStreamGuard(stream_); }
  // What the current stream is given from here on comes after all that this one has been given.
  void make_current_wait() const;

 private:
  std::optional<c10::Stream> stream_;
  // That of the last wait. The next wait marks its event anew: making one costs as much as waiting.
  mutable StreamMark so_far_;
};

// The transport runs collectives on streams of its own, which come after the stream that issues
// them. On a single stream of ours, every collective would come after all before it.
struct SideStreams {
  SideStreams() = default;
  explicit SideStreams(at::Device device);
  // All of them come after what the current stream has been given.
  void follow_current() const;
  // The current stream comes after all of them: before memory is dropped that they may still use.
  void make_current_wait() const noexcept;

  SideStream gather;      // casts and gathers shards, while the unit before computes
  SideStream reduce;      // reduces a unit's gradients, while the next one's are computed
  SideStream all_reduce;  // adds replicas, while the next unit's reduce-scatter runs
};

}  // namespace fsdp2::fsdp
