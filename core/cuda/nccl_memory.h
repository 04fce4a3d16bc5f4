// Memory of NCCL's own, registered with one communicator: its collectives then may read and write
// it in place, where they would otherwise pass through buffers of NCCL's (NVLink SHARP, networks
// with direct access).
//
// As the caching allocator's, a piece belongs to the stream that was current when it was taken.
// Once given back, by any thread, it becomes any later piece of its size and stream at once,
// without a call to the driver. Small pieces are cut from larger ones, as the driver gives no less
// than 2 MiB.
//
// What a recording takes stays the graph's (cuda_graphs.h): within the recording it goes from piece
// to piece, and nobody else gets it.
//
// Note [Freeing registered memory]
// Pieces end on any thread, such as a finalizer, where NCCL may not be called: one thread at a time
// calls it for a communicator. So their end only notes what nobody uses any more. It is withdrawn
// and freed by release(), or without a withdrawal once the communicator is gone; and only when the
// device has come to the end of all that it was given, which cannot be known while somebody
// records. What could not be freed waits for the next time.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/cuda/nccl_communicator.h"

namespace fsdp2::cuda {

class NcclMemory : public std::enable_shared_from_this<NcclMemory> {
 public:
  explicit NcclMemory(const std::shared_ptr<NcclCommunicator>& communicator);
  NcclMemory(const NcclMemory&) = delete;
  NcclMemory& operator=(const NcclMemory&) = delete;

  // The memory belongs to the current stream, and may outlive the communicator. Errors:
  // c10::OutOfMemoryError; else as NcclCommunicator::launch(). REQUIRES: owned by a shared_ptr; no
  // other thread calls the communicator.
  c10::DataPtr allocate(size_t bytes);
  // Frees what nobody uses; the host waits for the device. Nothing while somebody records on it.
  // REQUIRES: no other thread calls the communicator.
  void release() noexcept;

 private:
  class Ended;
  class Segment;
  struct Piece {
    std::shared_ptr<Segment> segment;
    void* memory;
  };
  struct Pool {
    std::map<std::pair<cudaStream_t, size_t>, std::vector<Piece>> spare;
    std::shared_ptr<Segment> open;  // that small pieces are cut from
    size_t cut = 0;                 // bytes of it
  };
  struct Lent;

  static void give_back(void* lent);
  Pool& pool_of(unsigned long long recording);  // NOLINT: CUDA's type
  Piece take(Pool& pool, cudaStream_t stream, size_t bytes, bool is_recorded);
  std::shared_ptr<Segment> new_segment(size_t bytes, bool is_recorded);

  const at::Device device_;
  const std::weak_ptr<NcclCommunicator> communicator_;
  const std::shared_ptr<Ended> ended_;
  std::mutex mutex_;
  Pool pool_;
  unsigned long long recording_ = 0;  // NOLINT: of recorded_; 0: none
  Pool recorded_;
  std::vector<Pool> past_;  // of recordings that have ended
};

}  // namespace fsdp2::cuda
