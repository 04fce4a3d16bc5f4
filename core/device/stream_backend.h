// What Comm asks of a backend whose collectives run on a device's streams.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <exception>
#include <functional>
#include <string>

namespace fsdp2 {

// The host gives it collectives and goes on, so it may never wait for one that fails: the streams
// then go on with whatever is in their buffers.
class StreamBackend : public c10d::Backend {
 public:
  using Backend::Backend;

  // Why a collective has failed; null as long as none has. Final: later collectives throw it. Any
  // thread.
  virtual std::exception_ptr error() const = 0;
  // Soon after `reason` finds why the ranks have given up, what is under way ends as by abort(),
  // though the host waits for a stream and looks at nothing. May be called by any thread.
  virtual void give_up_when(std::function<std::string()> reason) = 0;
  // What allocateTensor has given, and nobody uses now, goes back to the device, for which the host
  // waits. No recording may be under way on this thread.
  virtual void release_memory() {}
};

}  // namespace fsdp2
