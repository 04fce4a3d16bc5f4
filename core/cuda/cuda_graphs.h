// Recorded work as CUDA graphs, with the collectives of NCCL in them.
//
// LibTorch's own class does the recording: the caching allocator then takes a pool of the graph's,
// and the device's generator gives each replay numbers of its own.
//
// Note [Graphs and communicators]
// NCCL ends a communicator, by an abort as well, only when all graphs with collectives of it are
// gone. A graph therefore keeps its communicators, and a communicator that was recorded is ended by
// a thread of its own, which may wait for the graphs without anybody waiting for it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/cuda/nccl_communicator.h"
#include "core/device/device_graphs.h"

namespace fsdp2::cuda {

const DeviceGraphs& cuda_graphs();

// For a communicator whose collective has been given to a stream that is being recorded: replays of
// the recording tell it where they end. REQUIRES: cuda_graphs() records.
void note_recorded(const std::shared_ptr<NcclCommunicator>& communicator);
// For memory that work has taken while it is recorded: the graph keeps it, and it ends after the
// graph and its communicators. REQUIRES: the same.
void keep_in_recording(at::Device device, const std::shared_ptr<void>& memory);
// Calls `act`, and returns true, unless cuda_graphs() records on the device; it does not begin to
// before `act` returns.
bool unless_recorded(at::Device device, const std::function<void()>& act);

}  // namespace fsdp2::cuda
