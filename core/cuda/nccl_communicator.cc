#include "core/cuda/nccl_communicator.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace fsdp2::cuda {

namespace {

constexpr const char* kIdKey = "nccl id";
constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::milliseconds kSettle{1};

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

NcclCommunicator::NcclCommunicator(c10d::Store& store, int rank, int size, at::Device device,
                                   std::chrono::milliseconds timeout)
    : device_(device), timeout_(timeout) {
  const c10::cuda::CUDAGuard guard(device_);
  const ncclUniqueId id = exchange_id(store, rank);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const auto deadline = Clock::now() + timeout;
  check(ncclCommInitRankConfig(&communicator_, size, id, rank, &config), "ncclCommInitRankConfig");
  settle(deadline, "ncclCommInitRankConfig");
  watcher_ = std::thread([this] { watch(); });
}

NcclCommunicator::~NcclCommunicator() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  if (watcher_.joinable()) {
    watcher_.join();
  }
  if (communicator_ != nullptr) {
    // Destroying would wait for the other ranks; everything of this rank that somebody waited for
    // has ended.
    (void)ncclCommAbort(communicator_);
  }
}

std::string NcclCommunicator::describe(const char* what, ncclResult_t result) const {
  return c10::str(what, ": ", ncclGetErrorString(result), " (", ncclGetLastError(communicator_),
                  ")");
}

// REQUIRES: the watcher does not run yet, or the lock is held.
void NcclCommunicator::check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) {
    return;
  }
  const std::string text = describe(what, result);
  if (communicator_ != nullptr) {
    (void)ncclCommAbort(std::exchange(communicator_, nullptr));
  }
  throw std::runtime_error(text);
}

void NcclCommunicator::settle(Clock::time_point deadline, const char* what) {
  for (;;) {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(communicator_, &state), "ncclCommGetAsyncError");
    check(state, what);
    if (state == ncclSuccess) {
      return;
    }
    if (Clock::now() >= deadline) {
      (void)ncclCommAbort(std::exchange(communicator_, nullptr));
      throw std::runtime_error(
          c10::str(what, ": not done within ", timeout_.count(), " ms: a rank did not come"));
    }
    std::this_thread::sleep_for(kSettle);
  }
}

std::shared_ptr<const Moment> NcclCommunicator::launch(
    const std::function<ncclResult_t(ncclComm_t communicator, cudaStream_t stream)>& call) {
  const c10::cuda::CUDAGuard guard(device_);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device_.index());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_) {
    std::rethrow_exception(error_);
  }
  const auto deadline = Clock::now() + timeout_;
  try {
    check(call(communicator_, stream.stream()), "a collective");
    settle(deadline, "a collective");
  } catch (...) {
    error_ = std::current_exception();  // the communicator is gone
    throw;
  }
  auto end = std::make_shared<const Moment>(stream);
  under_way_.push_back({end, deadline});
  return end;
}

std::exception_ptr NcclCommunicator::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

void NcclCommunicator::abort(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!error_) {
    error_ = std::make_exception_ptr(std::runtime_error(reason));
  }
  under_way_.clear();
  if (communicator_ != nullptr) {
    (void)ncclCommAbort(std::exchange(communicator_, nullptr));
  }
}

std::string NcclCommunicator::find_problem() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (communicator_ == nullptr) {
    return "";
  }
  try {
    while (!under_way_.empty() && under_way_.front().end->is_past()) {
      under_way_.pop_front();
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  ncclResult_t state = ncclSuccess;
  (void)ncclCommGetAsyncError(communicator_, &state);
  if (state != ncclSuccess && state != ncclInProgress) {
    return describe("NCCL", state);
  }
  if (!under_way_.empty() && Clock::now() >= under_way_.front().deadline) {
    return c10::str("not done within ", timeout_.count(),
                    " ms: a rank is late, has stopped or is elsewhere");
  }
  return "";
}

void NcclCommunicator::watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, kLook, [this] { return closing_; })) {
    lock.unlock();
    const std::string problem = find_problem();
    if (!problem.empty()) {
      abort(problem);
    }
    lock.lock();
  }
}

}  // namespace fsdp2::cuda
