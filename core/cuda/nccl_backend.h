// The ranks of a group as a c10d backend over NCCL.
//
// LibTorch's ProcessGroupNCCL is not used: its watchdog ends the process on a time-out unless the
// environment says otherwise, its works abort the communicator when a wait's slice is over, and its
// header asks for those of cuBLAS, cuSPARSE and cuSOLVER.
//
// Collectives run on the current stream, so that whoever calls them chooses what they overlap with
// and in which order they come. Tensors are flat, contiguous and on the group's device.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

#include "core/device/stream_backend.h"

namespace fsdp2::cuda {

// Collective; throws std::exception after `timeout`.
c10::intrusive_ptr<StreamBackend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size, at::Device device,
                                                    std::chrono::milliseconds timeout);

}  // namespace fsdp2::cuda
