#include "core/comm/transport/host_backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <utility>
#include <vector>

#include "core/comm/transport/all_reduce_path.h"
#include "core/comm/transport/host_exchange.h"
#include "core/comm/transport/rank_order.h"
#include "core/comm/transport/reduce_op.h"
#include "core/comm/transport/transport_bytes.h"

namespace fsdp2 {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

class HostWork final : public c10d::Work {
 public:
  HostWork(std::shared_ptr<HostExchange> exchange, OperationPtr operation)
      : exchange_(std::move(exchange)), operation_(std::move(operation)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    return exchange_->wait(*operation_, timeout);
  }
  bool isCompleted() override {
    HostExchange::progress_all();
    return exchange_->finished(*operation_);
  }
  bool isSuccess() const override {
    return exchange_->finished(*operation_) && exception() == nullptr;
  }
  std::exception_ptr exception() const override { return exchange_->error_of(*operation_); }

 private:
  std::shared_ptr<HostExchange> exchange_;
  OperationPtr operation_;
};

class HostBackend final : public c10d::Backend {
 public:
  HostBackend(std::unique_ptr<SharedSegment> segment, int rank, int size)
      : Backend(rank, size),
        exchange_(std::make_shared<HostExchange>(std::move(segment), rank, size)) {}

  const std::string getBackendName() const override { return "host"; }
  void abort() override { exchange_->abort(); }

  WorkPtr _allgather_base(at::Tensor& out, at::Tensor& in,
                          const c10d::AllgatherOptions& /*options*/) override {
    const OperationPtr operation = make(Collective::kAllGather, {out, in});
    gather_from_all(*operation, out, in);
    return post(operation);
  }

  WorkPtr _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                               const c10d::ReduceScatterOptions& options) override {
    const OperationPtr operation = make(Collective::kReduceScatter, {out, in});
    scatter_and_reduce(*operation, out, in, to_reduce_op(options.reduceOp));
    return post(operation);
  }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const c10d::AllreduceOptions& options) override {
    const at::Tensor& tensor = tensors.at(0);
    const ReduceOp op = to_reduce_op(options.reduceOp);
    if (all_reduce_gathers(bytes_in(tensor), getSize())) {
      return reduce_everywhere(tensor, op);
    }
    return reduce_in_slices(tensor, op);
  }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors,
                    const c10d::BroadcastOptions& options) override {
    const at::Tensor& tensor = tensors.at(0);
    const auto root = static_cast<int>(options.rootRank);
    const OperationPtr operation = make(Collective::kBroadcast, {tensor});
    if (root == getRank()) {
      operation->send.add(bytes_of(tensor), bytes_in(tensor));
    } else {
      operation->receive[static_cast<size_t>(root)].add(bytes_of(tensor), bytes_in(tensor));
    }
    return post(operation);
  }

  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override {
    const at::Tensor& out = outputs.at(0);
    const auto root = static_cast<int>(options.rootRank);
    const OperationPtr operation = make(Collective::kScatter, {out});
    if (root != getRank()) {
      receive_own_of_slices(*operation, root, bytes_of(out), bytes_in(out));
      return post(operation);
    }
    for (int peer = 0; peer < getSize(); ++peer) {
      const at::Tensor& piece = inputs.at(0).at(static_cast<size_t>(peer));
      operation->keep.push_back(piece);
      if (peer == root) {
        copy_bytes(bytes_of(out), bytes_of(piece), piece.nbytes());
      } else {
        operation->send.add(bytes_of(piece), bytes_in(piece));
      }
    }
    return post(operation);
  }

  WorkPtr alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& /*out_sizes*/,
                        std::vector<int64_t>& /*in_sizes*/,
                        const c10d::AllToAllOptions& /*options*/) override {
    const OperationPtr operation = make(Collective::kAllToAll, {out, in});
    const int64_t bytes = bytes_in(in) / getSize();
    for (int peer = 0; peer < getSize(); ++peer) {
      std::byte* const place = bytes_of(out) + peer * bytes;
      std::byte* const part = bytes_of(in) + peer * bytes;
      if (peer == getRank()) {
        copy_bytes(place, part, static_cast<size_t>(bytes));
      } else {
        operation->send.add(part, bytes);
        receive_own_of_slices(*operation, peer, place, bytes);
      }
    }
    return post(operation);
  }

  WorkPtr barrier(const c10d::BarrierOptions& /*options*/) override {
    return post(make(Collective::kBarrier, {}));  // announcements alone
  }

 private:
  OperationPtr make(Collective collective, std::vector<at::Tensor> keep) {
    return exchange_->make(collective, std::move(keep));
  }

  WorkPtr post(const OperationPtr& operation) {
    exchange_->post(operation);
    return c10::make_intrusive<HostWork>(exchange_, operation);
  }

  // Slices for the others follow each other in rank order in a stream; this rank's is taken out.
  void receive_own_of_slices(Operation& operation, int source, std::byte* to, int64_t bytes) {
    Pieces& pieces = operation.receive[static_cast<size_t>(source)];
    for (int peer = 0; peer < getSize(); ++peer) {
      if (peer != source) {
        pieces.add(peer == getRank() ? to : nullptr, bytes);
      }
    }
  }

  void gather_from_all(Operation& operation, const at::Tensor& out, const at::Tensor& in) {
    const int64_t bytes = bytes_in(in);
    for (int source = 0; source < getSize(); ++source) {
      std::byte* const place = bytes_of(out) + source * bytes;
      if (source != getRank()) {
        operation.receive[static_cast<size_t>(source)].add(place, bytes);
      } else {
        copy_bytes(place, bytes_of(in), in.nbytes());
      }
    }
    operation.send.add(bytes_of(in), bytes);
  }

  void scatter_and_reduce(Operation& operation, const at::Tensor& out, const at::Tensor& in,
                          ReduceOp op) {
    const int64_t length = in.numel() / getSize();
    const int64_t bytes = length * static_cast<int64_t>(in.element_size());
    std::vector<at::Tensor> parts;
    for (int source = 0; source < getSize(); ++source) {
      if (source == getRank()) {
        parts.push_back(in.narrow(0, source * length, length));
        continue;
      }
      parts.push_back(at::empty({length}, in.options()));
      receive_own_of_slices(operation, source, bytes_of(parts.back()), bytes);
      operation.send.add(bytes_of(in) + source * bytes, bytes);
    }
    operation.finish = [out, parts, op] { reduce_in_rank_order(out, parts, op); };
  }

  WorkPtr reduce_everywhere(const at::Tensor& tensor, ReduceOp op) {
    const at::Tensor all = at::empty({getSize() * tensor.numel()}, tensor.options());
    const OperationPtr operation = make(Collective::kAllReduce, {tensor, all});
    gather_from_all(*operation, all, tensor);
    operation->finish = [tensor, all, op, size = getSize()] {
      reduce_in_rank_order(tensor, all.view({size, -1}).unbind(0), op);
    };
    return post(operation);
  }

  WorkPtr reduce_in_slices(const at::Tensor& tensor, ReduceOp op) {
    const SlicedReduction sliced(tensor, op, getRank(), getSize());
    const at::Tensor own = sliced.slice(getRank());
    const OperationPtr reduce = make(Collective::kAllReduce, {tensor, own});
    const OperationPtr share = make(Collective::kAllReduce, {tensor, own});
    for (int peer = 0; peer < getSize(); ++peer) {
      if (peer != getRank()) {
        const at::Tensor slice = sliced.slice(peer);
        receive_own_of_slices(*reduce, peer, bytes_of(sliced.part(peer)), bytes_in(own));
        reduce->send.add(bytes_of(slice), bytes_in(slice));
        share->receive[static_cast<size_t>(peer)].add(bytes_of(slice), bytes_in(slice));
      }
    }
    share->send.add(bytes_of(own), bytes_in(own));
    reduce->finish = [sliced] { sliced.reduce(); };
    share->finish = [sliced] { sliced.finish(); };
    share->after = reduce;
    post(reduce);
    return post(share);
  }

  std::shared_ptr<HostExchange> exchange_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_host_backend(std::unique_ptr<SharedSegment> segment,
                                                    int rank, int size) {
  return c10::make_intrusive<HostBackend>(std::move(segment), rank, size);
}

}  // namespace fsdp2
