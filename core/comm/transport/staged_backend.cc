#include "core/comm/transport/staged_backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp2 {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// A work of the host, and the copies to the device that its first good wait makes.
class StagedWork final : public c10d::Work {
 public:
  StagedWork(WorkPtr host, std::function<void()> copy_back)
      : host_(std::move(host)), copy_back_(std::move(copy_back)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    if (!host_->wait(timeout)) {
      return false;
    }
    if (auto copy_back = std::exchange(copy_back_, nullptr)) {
      try {
        copy_back();
      } catch (...) {
        error_ = std::current_exception();
      }
    }
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
    return true;
  }
  bool isCompleted() override { return host_->isCompleted(); }
  bool isSuccess() const override { return copy_back_ == nullptr && exception() == nullptr; }
  std::exception_ptr exception() const override {
    return error_ != nullptr ? error_ : host_->exception();
  }
  void abort() override { host_->abort(); }

 private:
  WorkPtr host_;
  std::function<void()> copy_back_;
  std::exception_ptr error_;  // of the copies
};

at::Tensor on_host(const at::Tensor& tensor) { return tensor.to(at::kCPU); }
at::Tensor room_on_host(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
}

class StagedBackend final : public c10d::Backend {
 public:
  explicit StagedBackend(c10::intrusive_ptr<c10d::Backend> host)
      : Backend(host->getRank(), host->getSize()), host_(std::move(host)) {}

  const std::string getBackendName() const override { return "staged " + host_->getBackendName(); }
  void abort() override { host_->abort(); }

  WorkPtr _allgather_base(at::Tensor& out, at::Tensor& in,
                          const c10d::AllgatherOptions& options) override {
    at::Tensor input = on_host(in);
    at::Tensor output = room_on_host(out);
    WorkPtr work = host_->_allgather_base(output, input, options);
    return then_copy(std::move(work), {out}, {output});
  }

  WorkPtr _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                               const c10d::ReduceScatterOptions& options) override {
    at::Tensor input = on_host(in);
    at::Tensor output = room_on_host(out);
    WorkPtr work = host_->_reduce_scatter_base(output, input, options);
    return then_copy(std::move(work), {out}, {output});
  }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const c10d::AllreduceOptions& options) override {
    std::vector<at::Tensor> values = all_on_host(tensors);
    WorkPtr work = host_->allreduce(values, options);
    return then_copy(std::move(work), tensors, values);
  }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors,
                    const c10d::BroadcastOptions& options) override {
    std::vector<at::Tensor> values = all_on_host(tensors);
    WorkPtr work = host_->broadcast(values, options);
    return then_copy(std::move(work), tensors, values);
  }

  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override {
    std::vector<std::vector<at::Tensor>> parts;
    for (const std::vector<at::Tensor>& each : inputs) {
      parts.push_back(all_on_host(each));
    }
    std::vector<at::Tensor> rooms;
    for (const at::Tensor& output : outputs) {
      rooms.push_back(room_on_host(output));
    }
    WorkPtr work = host_->scatter(rooms, parts, options);
    return then_copy(std::move(work), outputs, rooms);
  }

  WorkPtr alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_sizes,
                        std::vector<int64_t>& in_sizes,
                        const c10d::AllToAllOptions& options) override {
    at::Tensor input = on_host(in);
    at::Tensor output = room_on_host(out);
    WorkPtr work = host_->alltoall_base(output, input, out_sizes, in_sizes, options);
    return then_copy(std::move(work), {out}, {output});
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override { return host_->barrier(options); }

 private:
  static std::vector<at::Tensor> all_on_host(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> values;
    for (const at::Tensor& tensor : tensors) {
      values.push_back(on_host(tensor));
    }
    return values;
  }

  static WorkPtr then_copy(WorkPtr work, std::vector<at::Tensor> to, std::vector<at::Tensor> from) {
    return c10::make_intrusive<StagedWork>(std::move(work),
                                           [to = std::move(to), from = std::move(from)] {
                                             for (size_t i = 0; i < to.size(); ++i) {
                                               to[i].copy_(from[i]);
                                             }
                                           });
  }

  c10::intrusive_ptr<c10d::Backend> host_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_staged_backend(c10::intrusive_ptr<c10d::Backend> host) {
  return c10::make_intrusive<StagedBackend>(std::move(host));
}

}  // namespace fsdp2
