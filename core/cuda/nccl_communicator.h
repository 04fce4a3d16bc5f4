// One NCCL communicator, made, watched and ended without ever blocking for longer than its
// time-out.
//
// NCCL's calls return at once and run on a stream. Where a rank is missing, their kernels spin, and
// whoever waits for the stream waits for ever: so a thread looks at what is under way, and aborts
// the communicator when something has not ended in time or NCCL has met an error of its own. The
// kernels end then, and the stream goes on with whatever is in its buffers; error() says why.
//
// Any thread, one at a time; the watching thread is the class's own.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace fsdp2::cuda {

// The moment when a stream has come to the end of what it was given. Shared by those who ask.
class Moment {
 public:
  explicit Moment(c10::cuda::CUDAStream stream);  // of what the stream has been given so far
  ~Moment();
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;

  bool is_past() const;
  // What `stream` is given from here on comes after it.
  void hold_back(c10::cuda::CUDAStream stream) const;

 private:
  const c10::DeviceIndex device_;
  cudaEvent_t event_ = nullptr;
};

class NcclCommunicator {
 public:
  // Collective over the ranks of the group, which meet in the store. Throws after `timeout`.
  NcclCommunicator(c10d::Store& store, int rank, int size, at::Device device,
                   std::chrono::milliseconds timeout);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Gives the collective to the current stream of the device: `call` is one of NCCL's, or several
  // that belong together. Throws error() once there is one.
  std::shared_ptr<const Moment> launch(
      const std::function<ncclResult_t(ncclComm_t communicator, cudaStream_t stream)>& call);
  // Why the communicator was aborted; null as long as it is sound.
  std::exception_ptr error() const;
  // Ends what is under way on this rank; later calls throw. Twice is allowed.
  void abort(const std::string& reason);

 private:
  using Clock = std::chrono::steady_clock;
  struct UnderWay {
    std::shared_ptr<const Moment> end;
    Clock::time_point deadline;
  };

  std::string describe(const char* what, ncclResult_t result) const;
  void check(ncclResult_t result, const char* what);
  // Until NCCL has done what it was asked to, in the background.
  void settle(Clock::time_point deadline, const char* what);
  void watch();
  // Empty as long as all is well. Forgets what has ended.
  std::string find_problem();

  const at::Device device_;
  const std::chrono::milliseconds timeout_;
  ncclComm_t communicator_ = nullptr;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<UnderWay> under_way_;
  std::exception_ptr error_;
  bool closing_ = false;
  std::thread watcher_;
};

}  // namespace fsdp2::cuda
