// A c10d backend for processes on one machine. Data goes through shared memory, with one copy in
// and one out, and is reduced in rank order.
//
// It has no threads: data moves while a rank posts or waits for a collective. A rank that does
// neither holds up the others once its ring is full. The collectives of a group complete in the
// order in which they were posted. The end of a rank's process is noticed at once.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>

#include "core/comm/transport/shared_segment.h"

namespace fsdp2 {

c10::intrusive_ptr<c10d::Backend> make_host_backend(std::unique_ptr<SharedSegment> segment,
                                                    int rank, int size);

}  // namespace fsdp2
