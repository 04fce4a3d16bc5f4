#include "core/cuda/nccl_backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/cuda/nccl_communicator.h"
#include "core/cuda/nccl_memory.h"

namespace fsdp2::cuda {

namespace {

using Clock = std::chrono::steady_clock;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

constexpr std::chrono::microseconds kAsk{50};

ncclDataType_t type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kChar:
      return ncclInt8;
    case at::kByte:
    case at::kBool:
      return ncclUint8;
    case at::kInt:
      return ncclInt32;
    case at::kLong:
      return ncclInt64;
    default:
      TORCH_CHECK(false, "NCCL cannot move ", tensor.scalar_type());
  }
}

ncclRedOp_t op_of(const c10d::ReduceOp& op) {
  if (op == c10d::ReduceOp::SUM) {
    return ncclSum;
  }
  if (op == c10d::ReduceOp::AVG) {
    return ncclAvg;
  }
  if (op == c10d::ReduceOp::MAX) {
    return ncclMax;
  }
  TORCH_CHECK(false, "NCCL: expected sum, average or max");
}

size_t count_of(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

// A collective that its stream has been given. It keeps its tensors until it is gone.
class NcclWork final : public c10d::Work {
 public:
  NcclWork(std::shared_ptr<NcclCommunicator> communicator, std::shared_ptr<const Moment> end,
           at::Device device, std::vector<at::Tensor> tensors)
      : communicator_(std::move(communicator)),
        end_(std::move(end)),
        device_(device),
        tensors_(std::move(tensors)) {}

  bool isCompleted() override { return exception() != nullptr || end_->is_past(); }
  bool isSuccess() const override { return exception() == nullptr && end_->is_past(); }
  std::exception_ptr exception() const override { return communicator_->error(); }

  bool wait(std::chrono::milliseconds timeout) override {
    const auto deadline = Clock::now() + timeout;
    while (!end_->is_past()) {
      rethrow();
      if (Clock::now() >= deadline) {
        return false;
      }
      std::this_thread::sleep_for(kAsk);
    }
    rethrow();  // an aborted collective ends, too
    synchronize();
    return true;
  }

  void synchronize() override { end_->hold_back(c10::cuda::getCurrentCUDAStream(device_.index())); }
  void abort() override { communicator_->abort("aborted"); }

 private:
  void rethrow() const {
    if (const std::exception_ptr error = exception()) {
      std::rethrow_exception(error);
    }
  }

  std::shared_ptr<NcclCommunicator> communicator_;
  std::shared_ptr<const Moment> end_;
  const at::Device device_;
  std::vector<at::Tensor> tensors_;
};

class NcclBackend final : public StreamBackend {
 public:
  NcclBackend(std::shared_ptr<NcclCommunicator> communicator, int rank, int size, at::Device device)
      : StreamBackend(rank, size),
        communicator_(std::move(communicator)),
        memory_(std::make_shared<NcclMemory>(communicator_)),
        device_(device) {}

  // What its memory still has then goes with whoever uses it last.
  ~NcclBackend() override {
    memory_->release();
    communicator_.reset();
    memory_->release();  // what could not be withdrawn
  }

  const std::string getBackendName() const override { return "nccl"; }
  void abort() override { communicator_->abort("given up, since a rank failed"); }
  std::exception_ptr error() const override { return communicator_->error(); }
  void give_up_when(std::function<std::string()> reason) override {
    communicator_->give_up_when(std::move(reason));
  }

  bool supportsTensorAlloc(c10::DeviceIndex /*device*/) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {  // NOLINT: c10d's type
    const auto bytes = static_cast<size_t>(size) * options.dtype().itemsize();
    at::Tensor tensor = at::empty({0}, options.device(device_));
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(memory_->allocate(bytes));
    storage->set_nbytes(bytes);
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous({size});
    return tensor;
  }
  void release_memory() override { memory_->release(); }

  WorkPtr _allgather_base(at::Tensor& out, at::Tensor& in,
                          const c10d::AllgatherOptions& /*options*/) override {
    return launch({out, in}, [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclAllGather(in.const_data_ptr(), out.mutable_data_ptr(), count_of(in), type_of(in),
                           communicator, stream);
    });
  }

  WorkPtr _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                               const c10d::ReduceScatterOptions& options) override {
    return launch({out, in}, [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclReduceScatter(in.const_data_ptr(), out.mutable_data_ptr(), count_of(out),
                               type_of(in), op_of(options.reduceOp), communicator, stream);
    });
  }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const c10d::AllreduceOptions& options) override {
    const at::Tensor& tensor = tensors.at(0);
    return launch({tensor}, [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclAllReduce(tensor.const_data_ptr(), tensor.mutable_data_ptr(), count_of(tensor),
                           type_of(tensor), op_of(options.reduceOp), communicator, stream);
    });
  }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors,
                    const c10d::BroadcastOptions& options) override {
    const at::Tensor& tensor = tensors.at(0);
    return launch({tensor}, [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclBroadcast(tensor.const_data_ptr(), tensor.mutable_data_ptr(), count_of(tensor),
                           type_of(tensor), static_cast<int>(options.rootRank), communicator,
                           stream);
    });
  }

  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override {
    const at::Tensor& out = outputs.at(0);
    const int root = static_cast<int>(options.rootRank);
    std::vector<at::Tensor> kept{out};
    if (getRank() == root) {
      kept.insert(kept.end(), inputs.at(0).begin(), inputs.at(0).end());
    }
    return launch(kept, [&](ncclComm_t communicator, cudaStream_t stream) {
      (void)ncclGroupStart();
      for (size_t i = 1; i < kept.size(); ++i) {
        (void)ncclSend(kept[i].const_data_ptr(), count_of(out), type_of(out),
                       static_cast<int>(i) - 1, communicator, stream);
      }
      (void)ncclRecv(out.mutable_data_ptr(), count_of(out), type_of(out), root, communicator,
                     stream);
      return ncclGroupEnd();  // which tells of the calls between, too
    });
  }

  WorkPtr alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& /*out_sizes*/,
                        std::vector<int64_t>& /*in_sizes*/,
                        const c10d::AllToAllOptions& /*options*/) override {
    const int64_t part = in.numel() / getSize();
    const auto bytes = static_cast<int64_t>(in.element_size()) * part;
    const auto* from = static_cast<const char*>(in.const_data_ptr());
    auto* to = static_cast<char*>(out.mutable_data_ptr());
    return launch({out, in}, [&](ncclComm_t communicator, cudaStream_t stream) {
      (void)ncclGroupStart();
      for (int peer = 0; peer < getSize(); ++peer) {
        (void)ncclSend(from + peer * bytes, static_cast<size_t>(part), type_of(in), peer,
                       communicator, stream);
        (void)ncclRecv(to + peer * bytes, static_cast<size_t>(part), type_of(in), peer,
                       communicator, stream);
      }
      return ncclGroupEnd();  // which tells of the calls between, too
    });
  }

  WorkPtr barrier(const c10d::BarrierOptions& /*options*/) override {
    std::vector<at::Tensor> nothing{at::zeros({1}, at::device(device_).dtype(at::kInt))};
    return allreduce(nothing, {});
  }

 private:
  template <typename Call>
  WorkPtr launch(std::vector<at::Tensor> tensors, const Call& call) {
    std::shared_ptr<const Moment> end = communicator_->launch(call);
    return c10::make_intrusive<NcclWork>(communicator_, std::move(end), device_,
                                         std::move(tensors));
  }

  std::shared_ptr<NcclCommunicator> communicator_;
  std::shared_ptr<NcclMemory> memory_;
  const at::Device device_;
};

}  // namespace

c10::intrusive_ptr<StreamBackend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size, at::Device device,
                                                    std::chrono::milliseconds timeout) {
  auto communicator = std::make_shared<NcclCommunicator>(*store, rank, size, device, timeout);
  return c10::make_intrusive<NcclBackend>(std::move(communicator), rank, size, device);
}

}  // namespace fsdp2::cuda
