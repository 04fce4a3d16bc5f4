// One NCCL communicator, made, watched and ended without ever blocking for longer than its
// time-out (watched_communicator.h).
//
// Any thread, one at a time; abort() and error() by any at any time.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "core/cuda/watch/watched_communicator.h"

namespace fsdp2::cuda {

// The moment when a stream has come to the end of what it was given. Shared by those who ask.
class Moment final : public Milestone {
 public:
  explicit Moment(c10::cuda::CUDAStream stream);  // of what the stream has been given so far
  ~Moment() override;
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;

  bool is_past() const override;
  // What `stream` is given from here on comes after it.
  void hold_back(c10::cuda::CUDAStream stream) const;

 private:
  const c10::DeviceIndex device_;
  cudaEvent_t event_ = nullptr;
};

class NcclCommunicator : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  // Collective over the ranks of the group, which meet in the store. Throws after `timeout`.
  NcclCommunicator(c10d::Store& store, int rank, int size, at::Device device,
                   std::chrono::milliseconds timeout);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Gives the collective to the current stream of the device: `call` is one of NCCL's, or several
  // that belong together. Throws error() once there is one. On a stream that is being recorded it
  // does not run, and is no one's to wait for on the host (cuda_graphs.h). REQUIRES: owned by a
  // shared_ptr.
  std::shared_ptr<const Moment> launch(
      const std::function<ncclResult_t(ncclComm_t communicator, cudaStream_t stream)>& call);
  // Registers memory of ncclMemAlloc; withdraw() takes its result. Throws as launch().
  void* enroll(void* memory, size_t bytes);
  // Whether it has: not once the communicator has ended or is ending. A refusal is no error of the
  // communicator's.
  bool withdraw(void* handle) noexcept;
  // Collectives of it that ran by themselves end there.
  void expect(const std::shared_ptr<const Moment>& end) { watched_->expect(end); }
  at::Device device() const { return device_; }
  // As WatchedCommunicator's.
  std::exception_ptr error() const { return watched_->error(); }
  void give_up_when(std::function<std::string()> reason) {
    watched_->give_up_when(std::move(reason));
  }
  void abort(const std::string& reason) { watched_->abort(reason); }

 private:
  class Nccl;

  const at::Device device_;
  Nccl* nccl_;  // of watched_
  std::unique_ptr<WatchedCommunicator> watched_;
};

}  // namespace fsdp2::cuda
