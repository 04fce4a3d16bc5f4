#include "core/cuda/nccl_communicator.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/cuda/cuda_graphs.h"

namespace fsdp2::cuda {

namespace {

constexpr const char* kIdKey = "nccl id";

// Rank 0 makes the name under which the ranks of the group meet.
ncclUniqueId exchange_id(c10d::Store& store, int rank) {
  ncclUniqueId id;
  if (rank == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    TORCH_CHECK(result == ncclSuccess, "ncclGetUniqueId: ", ncclGetErrorString(result));
    const auto* bytes = reinterpret_cast<const uint8_t*>(&id);
    store.set(kIdKey, std::vector<uint8_t>(bytes, bytes + sizeof(id)));
    return id;
  }
  const std::vector<uint8_t> bytes = store.get(kIdKey);
  TORCH_CHECK(bytes.size() == sizeof(id), "the store holds another NCCL's id");
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(&id));
  return id;
}

bool is_being_recorded(c10::cuda::CUDAStream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream.stream(), &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

Moment::Moment(c10::cuda::CUDAStream stream) : device_(stream.device_index()) {
  const c10::cuda::CUDAGuard guard(device_);
  C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  C10_CUDA_CHECK(cudaEventRecord(event_, stream.stream()));
}

Moment::~Moment() {
  const c10::cuda::CUDAGuard guard(device_);
  C10_CUDA_CHECK_WARN(cudaEventDestroy(event_));
}

bool Moment::is_past() const {
  const c10::cuda::CUDAGuard guard(device_);
  // A thread that records may ask, too, for collectives before the recording.
  const c10::cuda::CUDAStreamCaptureModeGuard any_time(cudaStreamCaptureModeRelaxed);
  const cudaError_t state = C10_CUDA_ERROR_HANDLED(cudaEventQuery(event_));
  if (state == cudaErrorNotReady) {
    (void)cudaGetLastError();  // which would otherwise be the next call's
    return false;
  }
  C10_CUDA_CHECK(state);
  return true;
}

void Moment::hold_back(c10::cuda::CUDAStream stream) const {
  const c10::cuda::CUDAGuard guard(device_);
  C10_CUDA_CHECK(cudaStreamWaitEvent(stream.stream(), event_, 0));
}

// NCCL's functions over one communicator, which is made by the first call of WatchedCommunicator.
class NcclCommunicator::Nccl final : public Communicator {
 public:
  Nccl() = default;
  // The graphs are gone.
  ~Nccl() override {
    if (ending_.joinable()) {
      ending_.join();
    }
  }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  void note_recorded() { is_recorded_ = true; }
  void make(int size, const ncclUniqueId& id, int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t result = ncclCommInitRankConfig(&handle_, size, id, rank, &config);
    is_there_ = handle_ != nullptr;
    check(result, "ncclCommInitRankConfig");
  }
  void check(ncclResult_t result, const char* what) const {
    if (result != ncclSuccess && result != ncclInProgress) {
      throw std::runtime_error(describe(result, what));
    }
  }
  ncclComm_t handle() const { return handle_; }

  State state() override {
    if (!is_there_) {
      return {};
    }
    ncclResult_t now = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(handle_, &now);
    if (asked != ncclSuccess) {
      return {true, describe(asked, "ncclCommGetAsyncError")};
    }
    const bool is_sound = now == ncclSuccess || now == ncclInProgress;
    return {now != ncclInProgress, is_sound ? "" : describe(now, "NCCL")};
  }
  // Destroying would wait for the other ranks; what somebody on this rank waited for has ended. See
  // Note [Graphs and communicators].
  void end() noexcept override {
    if (!is_there_) {
      return;
    }
    if (is_recorded_) {
      try {
        ending_ = std::thread([this] { (void)ncclCommAbort(handle_); });
      } catch (const std::exception&) {  // no more threads: it stays, as the process ends
      }
    } else {
      (void)ncclCommAbort(handle_);
    }
  }

 private:
  std::string describe(ncclResult_t result, const char* what) const {
    return c10::str(what, ": ", ncclGetErrorString(result), " (", ncclGetLastError(handle_), ")");
  }

  ncclComm_t handle_ = nullptr;
  std::atomic<bool> is_there_{false};
  std::atomic<bool> is_recorded_{false};
  std::thread ending_;
};

NcclCommunicator::NcclCommunicator(c10d::Store& store, int rank, int size, at::Device device,
                                   std::chrono::milliseconds timeout)
    : device_(device) {
  const c10::cuda::CUDAGuard guard(device_);
  const ncclUniqueId id = exchange_id(store, rank);
  auto nccl = std::make_unique<Nccl>();
  nccl_ = nccl.get();
  watched_ = std::make_unique<WatchedCommunicator>(std::move(nccl), timeout);
  watched_->ask([&] { nccl_->make(size, id, rank); });
}

NcclCommunicator::~NcclCommunicator() = default;

std::shared_ptr<const Moment> NcclCommunicator::launch(
    const std::function<ncclResult_t(ncclComm_t communicator, cudaStream_t stream)>& call) {
  const c10::cuda::CUDAGuard guard(device_);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device_.index());
  const bool is_recorded = is_being_recorded(stream);
  if (is_recorded) {
    nccl_->note_recorded();
    note_recorded(shared_from_this());
  }
  watched_->ask([&] { nccl_->check(call(nccl_->handle(), stream.stream()), "a collective"); });
  auto end = std::make_shared<const Moment>(stream);
  if (!is_recorded) {
    watched_->expect(end);
  }
  return end;
}

void* NcclCommunicator::enroll(void* memory, size_t bytes) {
  const c10::cuda::CUDAGuard guard(device_);
  void* handle = nullptr;
  watched_->ask([&] {
    nccl_->check(ncclCommRegister(nccl_->handle(), memory, bytes, &handle), "ncclCommRegister");
  });
  return handle;
}

bool NcclCommunicator::withdraw(void* handle) noexcept {
  if (handle == nullptr) {
    return true;  // NCCL_LOCAL_REGISTER is 0
  }
  try {
    const c10::cuda::CUDAGuard guard(device_);
    ncclResult_t result = ncclSuccess;
    watched_->ask([&] { result = ncclCommDeregister(nccl_->handle(), handle); });
    return result == ncclSuccess;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace fsdp2::cuda
