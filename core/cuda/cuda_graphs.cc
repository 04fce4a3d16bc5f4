#include "core/cuda/cuda_graphs.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Generator.h>
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

namespace fsdp2::cuda {

namespace {

using Communicators = std::vector<std::shared_ptr<NcclCommunicator>>;

// The communicators of the recordings under way, by device. Several threads may give work, as
// backward has its own.
class Recorded {
 public:
  void begin(c10::DeviceIndex device, Communicators* into) {
    const std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(into_.emplace(device, into).second, "two recordings at a time");
  }
  void end(c10::DeviceIndex device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    into_.erase(device);
  }
  void add(const std::shared_ptr<NcclCommunicator>& communicator) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = into_.find(communicator->device().index());
    TORCH_CHECK(found != into_.end(), "a collective on a stream that somebody else records");
    Communicators& all = *found->second;
    if (std::find(all.begin(), all.end(), communicator) == all.end()) {
      all.push_back(communicator);
    }
  }

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, Communicators*> into_;
};

Recorded& recorded() {
  static Recorded instance;
  return instance;
}

class RecordingInto {
 public:
  RecordingInto(c10::DeviceIndex device, Communicators* into) : device_(device) {
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

// Does what may have been done already, or cannot be.
void try_to(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception&) {
    (void)cudaGetLastError();  // which would otherwise be the next call's
  }
}

// Ends what work that threw has left begun, which LibTorch does only for recordings that succeed.
void break_off(at::cuda::CUDAGraph& graph, c10::DeviceIndex device, c10::MempoolId_t pool) {
  bool has_ended = false;
  try_to([&] {
    graph.capture_end();
    has_ended = true;  // it was sound
  });
  if (has_ended) {
    return;
  }
  try_to([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool); });
  try_to([&] { c10::cuda::CUDACachingAllocator::releasePool(device, pool); });
  try_to([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool); });
  try_to([&] { at::getHostAllocator(at::kCUDA)->release_pool(pool); });
  // The generator still waits for the end.
  try_to([&] {
    at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.graphsafe_set_state(generator.clone());
  });
}

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
      : device_(device), pool_(shares != nullptr ? shares->pool_ : at::cuda::graph_pool_handle()) {}

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
    for (const auto& communicator : communicators_) {
      communicator->expect(end);
    }
  }

 private:
  void record_on(c10::cuda::CUDAStream stream, const std::function<void()>& work) {
    const RecordingInto recording(device_.index(), &communicators_);
    try {
      // Other threads of the process may do as they like.
      graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
      work();
      require_sound(stream);
      graph_.capture_end();
    } catch (...) {
      break_off(graph_, device_.index(), pool_);
      throw;
    }
  }

  const at::Device device_;
  const c10::MempoolId_t pool_;
  Communicators communicators_;  // which end after the graph
  at::cuda::CUDAGraph graph_{/*keep_graph=*/true};
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

}  // namespace fsdp2::cuda
