#include "core/cuda/cuda_graphs.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace fsdp2::cuda {

namespace {

// What a recording's graph keeps, the last first to end.
struct Kept {
  std::vector<std::shared_ptr<void>> memory;
  std::vector<std::shared_ptr<NcclCommunicator>> communicators;
};

// Adds what is not there yet.
template <typename Pointer>
void add_once(std::vector<Pointer>& all, const Pointer& one) {
  if (std::find(all.begin(), all.end(), one) == all.end()) {
    all.push_back(one);
  }
}

// What the recordings under way are to keep, by device. Several threads may give work, as backward
// has its own.
class Recorded {
 public:
  void begin(c10::DeviceIndex device, Kept* into) {
    const std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(into_.emplace(device, into).second, "two recordings at a time");
  }
  void end(c10::DeviceIndex device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    into_.erase(device);
  }
  void add(const std::shared_ptr<NcclCommunicator>& communicator) {
    const std::lock_guard<std::mutex> lock(mutex_);
    add_once(into(communicator->device().index()).communicators, communicator);
  }
  void keep(c10::DeviceIndex device, const std::shared_ptr<void>& memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    add_once(into(device).memory, memory);
  }
  bool unless(c10::DeviceIndex device, const std::function<void()>& act) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (into_.count(device) > 0) {
      return false;
    }
    act();
    return true;
  }

 private:
  Kept& into(c10::DeviceIndex device) const {
    const auto found = into_.find(device);
    TORCH_CHECK(found != into_.end(),
                "a collective, or memory for one, on a stream that somebody else records");
    return *found->second;
  }

  std::mutex mutex_;
  std::map<c10::DeviceIndex, Kept*> into_;
};

Recorded& recorded() {
  static auto* const instance = new Recorded;  // until the process ends: memory may end late
  return *instance;
}

class RecordingInto {
 public:
  RecordingInto(c10::DeviceIndex device, Kept* into) : device_(device) {
    recorded().begin(device, into);
  }
  ~RecordingInto() { recorded().end(device_); }
  RecordingInto(const RecordingInto&) = delete;
  RecordingInto& operator=(const RecordingInto&) = delete;

 private:
  const c10::DeviceIndex device_;
};

bool is_of_host(const void* memory) {
  cudaPointerAttributes attributes{};
  C10_CUDA_CHECK(cudaPointerGetAttributes(&attributes, memory));
  return attributes.type == cudaMemoryTypeUnregistered || attributes.type == cudaMemoryTypeHost;
}

// A copy from the host that nobody waits for is recorded without a word, and a replay would read
// whatever is there by then.
void refuse_copies_of_the_host(cudaGraph_t graph) {
  size_t count = 0;
  C10_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  C10_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    C10_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeMemcpy) {
      continue;
    }
    cudaMemcpy3DParms copy{};
    C10_CUDA_CHECK(cudaGraphMemcpyNodeGetParams(node, &copy));
    for (const void* memory : {copy.srcPtr.ptr, copy.dstPtr.ptr}) {
      TORCH_CHECK(memory == nullptr || !is_of_host(memory),
                  "a copy from or to memory of the host, which a replay would find changed");
    }
  }
}

// Work may have broken the recording and gone on.
void require_sound(c10::cuda::CUDAStream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream.stream(), &status));
  TORCH_CHECK(status == cudaStreamCaptureStatusActive,
              "something that a graph cannot hold has been given to the GPU");
}

// Does what may have been done already, or cannot be. Whether it has done it.
bool try_to(const std::function<void()>& act) {
  try {
    act();
    return true;
  } catch (const std::exception&) {
    (void)cudaGetLastError();  // which would otherwise be the next call's
    return false;
  }
}

// Whether a generator's state waits for the end of a capture (LibTorch 2.11), or knows captures by
// their ids, of which reset() forgets the graph's.
template <typename State, typename = void>
struct WaitsForTheEnd : std::false_type {};
template <typename State>
struct WaitsForTheEnd<State, std::void_t<decltype(std::declval<State&>().capturing_)>>
    : std::true_type {};
template <typename State, typename = void>
struct KnowsCaptures : std::false_type {};
template <typename State>
struct KnowsCaptures<State, std::void_t<decltype(&State::remove_capture_state)>> : std::true_type {
};

template <typename State>
void stop_waiting(State& state) {
  static_assert(WaitsForTheEnd<State>::value != KnowsCaptures<State>::value,
                "read anew what a failed capture leaves begun in this LibTorch");
  if constexpr (WaitsForTheEnd<State>::value) {
    state.capturing_ = false;
  }
}

// LibTorch's class, which cleans up behind captures that succeed.
//
// Note [A capture that fails]
// capture_begin counts the pool as used in both allocators, of the device and of pinned memory,
// which give the stream memory of it from then on. capture_end first ends the capture, which throws
// if that is broken; then ends both allocators' part, and the generators'. reset(), and so the
// destructor, takes the pool's use back only after a capture_end that came to its end. So break_off
// ends the allocators' part, which throws where it has ended, and takes a use back where there is
// one more than before: once too often would be another graph's, whose memory would go. Where the
// allocator does not tell (cudaMallocAsync), the pool stays for ever. In LibTorch 2.11 the
// generators' states would refuse to draw until the end of the capture; they stay the same objects,
// from which the graphs that share them go on drawing.
class Capture final : public at::cuda::CUDAGraph {
 public:
  Capture(c10::DeviceIndex device, c10::MempoolId_t pool)
      : CUDAGraph(/*keep_graph=*/true), device_(device), pool_(pool) {}

  void begin() {
    uses_before_ = uses();
    // Other threads of the process may do as they like.
    capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    has_begun_ = true;
  }
  // Ends what work that threw has left begun. On the stream that begin() was called on.
  void break_off() noexcept {
    if (try_to([&] { capture_end(); })) {
      return;  // it was sound
    }
    try_to([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool_); });
    const bool host_was_in_it =
        try_to([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool_); });
    if (uses_before_ && uses().value_or(0) > *uses_before_) {
      try_to([&] { c10::cuda::CUDACachingAllocator::releasePool(device_, pool_); });
      if (has_begun_ || host_was_in_it) {
        try_to([&] { at::getHostAllocator(at::kCUDA)->release_pool(pool_); });
      }
    }
    for (const auto& entry : captured_generator_states_) {
      stop_waiting(*entry.first);
    }
  }

 private:
  // How many graphs use the pool; none if the allocator does not tell.
  std::optional<int> uses() const {
    std::optional<int> count;
    if (!try_to(
            [&] { count = c10::cuda::CUDACachingAllocator::getPoolUseCount(device_, pool_); }) &&
        c10::cuda::CUDACachingAllocator::name() == kCountingAllocator) {
      count = 0;  // a pool that is not there yet
    }
    return count;
  }

  static constexpr const char* kCountingAllocator = "native";

  const c10::DeviceIndex device_;
  const c10::MempoolId_t pool_;
  std::optional<int> uses_before_;
  bool has_begun_ = false;
};

// One a device, as libraries keep memory for each stream that they are used on. The default stream
// cannot be recorded.
c10::cuda::CUDAStream recording_stream(c10::DeviceIndex device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = streams.find(device);
  return known != streams.end()
             ? known->second
             : streams
                   .emplace(device, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device))
                   .first->second;
}

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(at::Device device, const CudaGraph* shares)
      : device_(device),
        pool_(shares != nullptr ? shares->pool_ : at::cuda::graph_pool_handle()),
        graph_(device.index(), pool_) {}

  void record(const std::function<void()>& work) {
    const c10::cuda::CUDAGuard guard(device_);
    const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(device_.index());
    const c10::cuda::CUDAStream stream = recording_stream(device_.index());
    Moment(current).hold_back(stream);
    // The graph's pool takes what the steps before it have had, and no more.
    c10::cuda::CUDACachingAllocator::emptyCache();
    {
      const c10::cuda::CUDAStreamGuard on_stream(stream);
      record_on(stream, work);
    }
    // What has run there: numbers for the device's generator, which a replay writes, too.
    Moment(stream).hold_back(current);
    refuse_copies_of_the_host(graph_.raw_cuda_graph());
    graph_.instantiate();
  }

  void replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_.replay();
    const auto end =
        std::make_shared<const Moment>(c10::cuda::getCurrentCUDAStream(device_.index()));
    for (const auto& communicator : kept_.communicators) {
      communicator->expect(end);
    }
  }

 private:
  void record_on(c10::cuda::CUDAStream stream, const std::function<void()>& work) {
    const RecordingInto recording(device_.index(), &kept_);
    try {
      graph_.begin();
      work();
      require_sound(stream);
      graph_.capture_end();
    } catch (...) {
      graph_.break_off();
      throw;
    }
  }

  const at::Device device_;
  const c10::MempoolId_t pool_;
  Kept kept_;  // ends after the graph
  Capture graph_;
};

class CudaGraphs final : public DeviceGraphs {
 public:
  std::unique_ptr<DeviceGraph> record(at::Device device, const DeviceGraph* shares,
                                      const std::function<void()>& work) const override {
    auto graph = std::make_unique<CudaGraph>(device, static_cast<const CudaGraph*>(shares));
    graph->record(work);
    return graph;
  }
};

}  // namespace

const DeviceGraphs& cuda_graphs() {
  static const CudaGraphs instance;
  return instance;
}

void note_recorded(const std::shared_ptr<NcclCommunicator>& communicator) {
  recorded().add(communicator);
}

void keep_in_recording(at::Device device, const std::shared_ptr<void>& memory) {
  recorded().keep(device.index(), memory);
}

bool unless_recorded(at::Device device, const std::function<void()>& act) {
  return recorded().unless(device.index(), act);
}

}  // namespace fsdp2::cuda
