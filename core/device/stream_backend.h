// What Comm asks of a backend whose collectives run on a device's streams.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <exception>

namespace fsdp2 {

// The host gives it collectives and goes on, so it may never wait for one that fails: the streams
// then go on with whatever is in their buffers.
class StreamBackend : public c10d::Backend {
 public:
  using Backend::Backend;

  // Why a collective has failed; null as long as none has. Final: later collectives throw it. Any
  // thread.
  virtual std::exception_ptr error() const = 0;
};

}  // namespace fsdp2
