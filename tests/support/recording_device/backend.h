// Collectives between recording devices, as NCCL has them: they run on streams of the group's own,
// which come after the stream that issues them, and the host goes on.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <exception>
#include <functional>
#include <memory>

#include "core/comm/world.h"
#include "core/device/stream_backend.h"
#include "tests/support/ranks.h"

namespace fsdp2::recording {

// host: moves the values, between the same ranks.
c10::intrusive_ptr<c10d::Backend> make_backend(c10::intrusive_ptr<c10d::Backend> host,
                                               at::Device device);

// What the backends of the device tell from now on of what streams were given; null: all is well.
// For the rank's own thread.
void set_stream_error(at::Device device, std::exception_ptr error);

// Whether groups of the device give memory by an error from now on. For the rank's own thread.
void set_memory_fails(at::Device device, bool flag);

// run_ranks, where rank r has device r and its meshes may be of kType. order: on the host, their
// collectives are the host's, for which tensors are copied there and back.
void run_ranks_on_devices(int size, const RankBody& body,
                          CollectiveOrder order = CollectiveOrder::kOnStream);

}  // namespace fsdp2::recording
