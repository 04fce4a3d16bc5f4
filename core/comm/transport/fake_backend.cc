#include "core/comm/transport/fake_backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <string>
#include <vector>

namespace fsdp2 {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class DoneWork final : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  std::exception_ptr exception() const override { return nullptr; }
};

WorkPtr done() { return c10::make_intrusive<DoneWork>(); }

class FakeBackend final : public c10d::Backend {
 public:
  FakeBackend(int rank, int size) : Backend(rank, size) {}

  const std::string getBackendName() const override { return "fake"; }
  void abort() override {}

  // Nothing moves, so a plan can be made of a job whose transport has memory.
  bool supportsTensorAlloc(c10::DeviceIndex /*device*/) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {  // NOLINT: c10d's type
    return at::empty({size}, at::device(options.device()).dtype(options.dtype()));
  }

  WorkPtr _allgather_base(at::Tensor& out, at::Tensor& in,
                          const c10d::AllgatherOptions& /*options*/) override {
    const at::Tensor rows = out.view({getSize(), in.numel()});
    const at::Tensor piece = in.view({1, in.numel()});
    if (in.is_alias_of(out)) {  // it is this rank's row
      rows.narrow(0, 0, getRank()).copy_(piece);
      rows.narrow(0, getRank() + 1, getSize() - getRank() - 1).copy_(piece);
    } else {
      rows.copy_(piece);
    }
    return done();
  }

  WorkPtr _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                               const c10d::ReduceScatterOptions& options) override {
    out.copy_(in.narrow(0, getRank() * out.numel(), out.numel()));
    return reduced(out, options.reduceOp);
  }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const c10d::AllreduceOptions& options) override {
    return reduced(tensors.at(0), options.reduceOp);
  }

  WorkPtr broadcast(std::vector<at::Tensor>& /*tensors*/,
                    const c10d::BroadcastOptions& /*options*/) override {
    return done();
  }

  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override {
    if (options.rootRank == getRank()) {
      outputs.at(0).copy_(inputs.at(0).at(getRank()));
    } else {
      outputs.at(0).zero_();
    }
    return done();
  }

  WorkPtr alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& /*out_sizes*/,
                        std::vector<int64_t>& /*in_sizes*/,
                        const c10d::AllToAllOptions& /*options*/) override {
    const int64_t part = in.numel() / getSize();
    out.view({getSize(), part}).copy_(in.narrow(0, getRank() * part, part).view({1, part}));
    return done();
  }

  WorkPtr barrier(const c10d::BarrierOptions& /*options*/) override { return done(); }

 private:
  WorkPtr reduced(at::Tensor& value, const c10d::ReduceOp& op) {
    if (op == c10d::ReduceOp::SUM) {
      value.mul_(getSize());
    }
    return done();
  }
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_fake_backend(int rank, int size) {
  return c10::make_intrusive<FakeBackend>(rank, size);
}

}  // namespace fsdp2
