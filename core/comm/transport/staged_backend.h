// Collectives of tensors on a device over a transport of the host: each tensor is copied there and
// back. For ranks that share a GPU, which NCCL refuses, and for machines without NCCL.
//
// A collective waits for what the device has been given when it is posted, and copies its results
// back in Work::wait, on the stream that is current then.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace fsdp2 {

// host: a backend whose tensors are on the host, of the same ranks.
c10::intrusive_ptr<c10d::Backend> make_staged_backend(c10::intrusive_ptr<c10d::Backend> host);

}  // namespace fsdp2
