#include "core/cuda/nccl_memory.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <nccl.h>

#include <exception>
#include <string>

#include "core/cuda/cuda_graphs.h"

namespace fsdp2::cuda {

namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kSmall = size_t{1} << 20;        // at most: cut from a segment of many
constexpr size_t kSegment = size_t{16} << 20;     // of small pieces
constexpr size_t kGranularity = size_t{2} << 20;  // the driver's

size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// 0: it is not being recorded.
unsigned long long recording_of(c10::cuda::CUDAStream stream) {  // NOLINT: CUDA's type
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;  // NOLINT
  C10_CUDA_CHECK(cudaStreamGetCaptureInfo(stream.stream(), &status, &id));
  return status == cudaStreamCaptureStatusActive ? id : 0;
}

// Whether the device has come to the end of all that it was given.
bool becomes_idle(at::Device device) noexcept {
  try {
    const c10::cuda::CUDAGuard guard(device);
    bool is_idle = false;
    const bool was_asked = unless_recorded(device, [&] {
      is_idle = cudaDeviceSynchronize() == cudaSuccess;
      if (!is_idle) {
        (void)cudaGetLastError();  // which would otherwise be the next call's
      }
    });
    return was_asked && is_idle;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

// What no piece is of any more, until it is freed. See Note [Freeing registered memory].
class NcclMemory::Ended {
 public:
  struct Block {
    void* memory;
    void* handle;  // of its registration
  };

  explicit Ended(const std::shared_ptr<NcclCommunicator>& communicator)
      : device_(communicator->device()), communicator_(communicator) {}
  ~Ended() {
    if (communicator_.expired()) {
      free();
    }  // else a graph has it still, and this thread may not call it: the memory stays
  }
  Ended(const Ended&) = delete;
  Ended& operator=(const Ended&) = delete;

  void add(const Block& block) noexcept {
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      blocks_.push_back(block);
    } catch (const std::exception&) {  // no memory to note it: it stays
    }
  }

  void free() noexcept {
    std::vector<Block> blocks;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      blocks.swap(blocks_);
    }
    if (blocks.empty()) {
      return;
    }
    const bool is_idle = becomes_idle(device_);
    const auto communicator = communicator_.lock();
    for (const Block& block : blocks) {
      const bool is_withdrawn =
          is_idle && (communicator == nullptr || communicator->withdraw(block.handle));
      if (is_withdrawn) {
        (void)ncclMemFree(block.memory);
      } else {
        add(block);
      }
    }
  }

 private:
  const at::Device device_;
  const std::weak_ptr<NcclCommunicator> communicator_;
  std::mutex mutex_;
  std::vector<Block> blocks_;
};

// Memory of the driver's, registered. Ends when no piece of it is used, kept or part of a graph.
class NcclMemory::Segment {
 public:
  Segment(std::shared_ptr<Ended> ended, const Ended::Block& block)
      : ended_(std::move(ended)), block_(block) {}
  ~Segment() { ended_->add(block_); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  char* memory() const { return static_cast<char*>(block_.memory); }

 private:
  const std::shared_ptr<Ended> ended_;
  const Ended::Block block_;
};

NcclMemory::NcclMemory(const std::shared_ptr<NcclCommunicator>& communicator)
    : device_(communicator->device()),
      communicator_(communicator),
      ended_(std::make_shared<Ended>(communicator)) {}

struct NcclMemory::Lent {
  std::shared_ptr<NcclMemory> owner;
  Piece piece;
  cudaStream_t stream;
  size_t bytes;
  unsigned long long recording;  // NOLINT: CUDA's type
};

c10::DataPtr NcclMemory::allocate(size_t bytes) {
  const c10::cuda::CUDAGuard guard(device_);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device_.index());
  const auto recording = recording_of(stream);
  const size_t whole = rounded_up(bytes, bytes <= kSmall ? kAlignment : kGranularity);
  Piece piece;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    piece = take(pool_of(recording), stream.stream(), whole, recording != 0);
  }
  if (recording != 0) {
    keep_in_recording(device_, piece.segment);
  }
  void* const memory = piece.memory;
  auto* const lent =
      new Lent{shared_from_this(), std::move(piece), stream.stream(), whole, recording};
  return {memory, lent, give_back, device_};
}

NcclMemory::Pool& NcclMemory::pool_of(unsigned long long recording) {  // NOLINT
  if (recording == 0) {
    return pool_;
  }
  if (recording != recording_) {
    past_.push_back(std::exchange(recorded_, {}));  // to end in release(), not in a recording
    recording_ = recording;
  }
  return recorded_;
}

NcclMemory::Piece NcclMemory::take(Pool& pool, cudaStream_t stream, size_t bytes,
                                   bool is_recorded) {
  std::vector<Piece>& spare = pool.spare[{stream, bytes}];
  if (!spare.empty()) {
    const Piece piece = std::move(spare.back());
    spare.pop_back();
    return piece;
  }
  if (bytes > kSmall) {
    const std::shared_ptr<Segment> segment = new_segment(bytes, is_recorded);
    return {segment, segment->memory()};
  }
  if (pool.open == nullptr || pool.cut + bytes > kSegment) {
    pool.open = new_segment(kSegment, is_recorded);
    pool.cut = 0;
  }
  void* const memory = pool.open->memory() + pool.cut;
  pool.cut += bytes;
  return {pool.open, memory};
}

std::shared_ptr<NcclMemory::Segment> NcclMemory::new_segment(size_t bytes, bool is_recorded) {
  const auto communicator = communicator_.lock();
  TORCH_CHECK(communicator != nullptr, "memory of a communicator that has ended");
  // NCCL asks the driver what a recording would otherwise forbid, and gives its streams nothing.
  const c10::cuda::CUDAStreamCaptureModeGuard any_time(cudaStreamCaptureModeRelaxed);
  void* memory = nullptr;
  ncclResult_t result = ncclMemAlloc(&memory, bytes);
  if (result == ncclUnhandledCudaError && !is_recorded) {
    (void)cudaGetLastError();  // which would otherwise be the next call's
    c10::cuda::CUDACachingAllocator::emptyCache();
    result = ncclMemAlloc(&memory, bytes);
  }
  if (result != ncclSuccess) {
    (void)cudaGetLastError();
    const std::string text =
        c10::str("ncclMemAlloc of ", bytes, " bytes: ", ncclGetErrorString(result), " (",
                 ncclGetLastError(nullptr), ")");
    TORCH_CHECK_WITH(OutOfMemoryError, result != ncclUnhandledCudaError,
                     "CUDA out of memory: ", text);
    TORCH_CHECK(false, text);
  }
  void* handle = nullptr;
  try {
    handle = communicator->enroll(memory, bytes);
  } catch (...) {
    (void)ncclMemFree(memory);
    throw;
  }
  return std::make_shared<Segment>(ended_, Ended::Block{memory, handle});
}

void NcclMemory::give_back(void* context) {
  const std::unique_ptr<Lent> lent(static_cast<Lent*>(context));
  NcclMemory& owner = *lent->owner;
  const std::lock_guard<std::mutex> lock(owner.mutex_);
  if (lent->recording == 0 || lent->recording == owner.recording_) {
    Pool& pool = lent->recording == 0 ? owner.pool_ : owner.recorded_;
    pool.spare[{lent->stream, lent->bytes}].push_back(std::move(lent->piece));
  }
}

void NcclMemory::release() noexcept {
  Pool spare;
  Pool recorded;
  std::vector<Pool> past;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::swap(spare, pool_);
    std::swap(recorded, recorded_);
    past.swap(past_);
    recording_ = 0;
  }
  spare = {};
  recorded = {};
  past.clear();
  ended_->free();
}

}  // namespace fsdp2::cuda
