#include "core/comm/transport/gloo_backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/blocked_signal.h"
#include "core/comm/transport/all_reduce_path.h"
#include "core/comm/transport/rank_order.h"
#include "core/comm/transport/reduce_op.h"
#include "core/comm/transport/transport_bytes.h"

// Notes on Gloo (LibTorch 2.11, all seen):
// - Options::create_default already holds a device; a second one would make two contexts that
//   alternate by call, so that half of the calls go on "working" after a failure.
// - Sizes or order that differ between ranks abort the process or mix up data: the caller agrees on
//   them before.
// - Work::wait(timeout) leaves the work intact when the time is over.
// - Backend::abort does nothing, and the destructor joins workers that may hang in a call until its
//   time-out. A point-to-point receive that runs into its time-out, however, makes Gloo fail all
//   that is pending on the group's connections: that is our abort.
// - Its headers here are of another version than its code, which is LibTorch's own: a Gloo object's
//   members are not where they seem. Only c10d's classes are used.
// - Every post enters the process's flight recorder, which keeps a map that it does not lock: two
//   threads that post to two groups can crash in it. So one post at a time in the process.

namespace fsdp2 {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Milliseconds = std::chrono::milliseconds;

// Comm gives up first, with a message that says more than Gloo's.
constexpr Milliseconds kAfterComm{1000};
constexpr int kAbortTag = 0x46534450;   // nobody sends with this tag
constexpr int kSliceTags = 0x10000000;  // two from here on for each all-reduce by slices
constexpr int kSliceTagMask = 0xffffff;

// A work and what is left to do on this rank when it is over; that happens in the first wait().
class ThenWork final : public c10d::Work {
 public:
  ThenWork(WorkPtr first, std::function<void()> then)
      : first_(std::move(first)), then_(std::move(then)) {}

  bool wait(Milliseconds timeout) override {
    if (!first_->wait(timeout)) {
      return false;
    }
    if (auto then = std::exchange(then_, nullptr)) {
      try {
        then();
      } catch (...) {
        error_ = std::current_exception();
      }
    }
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
    return true;
  }

  bool isCompleted() override { return first_->isCompleted(); }
  bool isSuccess() const override { return then_ == nullptr && exception() == nullptr; }
  std::exception_ptr exception() const override {
    return error_ != nullptr ? error_ : first_->exception();
  }

 private:
  WorkPtr first_;
  std::function<void()> then_;
  std::exception_ptr error_;
};

// Gloo knows few dtypes, and moving bytes is all that a gather does.
at::Tensor as_bytes(const at::Tensor& flat) { return flat.view(at::kByte); }

std::vector<at::Tensor> slices_of(const at::Tensor& flat, int parts) {
  const int64_t length = flat.numel() / parts;
  std::vector<at::Tensor> result;
  for (int part = 0; part < parts; ++part) {
    result.push_back(flat.narrow(0, part * length, length));
  }
  return result;
}

WorkPtr post(const std::function<WorkPtr()>& call) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  return call();
}

// An all-reduce by slices, on a thread of Gloo's: it goes on while nobody waits. Gloo's own sums in
// the tensor's dtype, in an order that depends on its length.
class SliceWork final : public c10d::ProcessGroupGloo::AsyncWork {
 public:
  using SendOrReceive = std::function<WorkPtr(const at::Tensor& bytes, int peer)>;
  struct Move {
    SendOrReceive send;
    SendOrReceive receive;
  };

  SliceWork(const at::Tensor& tensor, SlicedReduction sliced, Move scatter, Move share,
            uint64_t sequence, Milliseconds timeout)
      : AsyncWork(nullptr, std::vector<std::vector<at::Tensor>>{{tensor}}, c10d::OpType::ALLREDUCE,
                  sequence, timeout),
        tensor_(tensor),
        sliced_(std::move(sliced)),
        scatter_(std::move(scatter)),
        share_(std::move(share)) {}

  void run() override {
    exchange(
        scatter_, [this](int peer) { return sliced_.slice(peer); },
        [this](int peer) { return sliced_.part(peer); });
    sliced_.reduce();
    exchange(
        share_, [this](int /*peer*/) { return sliced_.slice(sliced_.rank()); },
        [this](int peer) { return sliced_.slice(peer); });
    sliced_.finish();
  }

  const std::vector<at::Tensor> getInputTensors() override { return {tensor_}; }
  const std::vector<at::Tensor> getOutputTensors() override { return {tensor_}; }

 private:
  using ByPeer = std::function<at::Tensor(int peer)>;

  void exchange(const Move& move, const ByPeer& outgoing, const ByPeer& incoming) {
    std::vector<WorkPtr> works;
    for (int step = 1; step < sliced_.size(); ++step) {  // not all from the same rank at once
      const int to = (sliced_.rank() + step) % sliced_.size();
      const int from = (sliced_.rank() + sliced_.size() - step) % sliced_.size();
      works.push_back(move.receive(as_bytes(incoming(from)), from));
      works.push_back(move.send(as_bytes(outgoing(to)), to));
    }
    for (const WorkPtr& work : works) {
      work->wait(timeout_);
    }
  }

  const at::Tensor tensor_;
  const SlicedReduction sliced_;
  const Move scatter_;
  const Move share_;
};

class GlooBackend final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  WorkPtr _allgather_base(at::Tensor& out, at::Tensor& in,
                          const c10d::AllgatherOptions& options) override {
    at::Tensor out_bytes = as_bytes(out);
    at::Tensor in_bytes = as_bytes(in);
    count_transport_bytes(bytes_in(out) - bytes_in(in));
    return post([&] { return ProcessGroupGloo::_allgather_base(out_bytes, in_bytes, options); });
  }

  WorkPtr _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                               const c10d::ReduceScatterOptions& options) override {
    const at::Tensor slices = at::empty({in.numel()}, in.options());
    at::Tensor slices_bytes = as_bytes(slices);
    at::Tensor in_bytes = as_bytes(in);
    std::vector<int64_t> even;
    auto move = alltoall_base(slices_bytes, in_bytes, even, even, {});
    const ReduceOp op = to_reduce_op(options.reduceOp);
    return c10::make_intrusive<ThenWork>(std::move(move), [slices, out, op, size = getSize()] {
      reduce_in_rank_order(out, slices_of(slices, size), op);
    });
  }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const c10d::AllreduceOptions& options) override {
    const at::Tensor& tensor = tensors.at(0);
    const ReduceOp op = to_reduce_op(options.reduceOp);
    const int size = getSize();
    if (all_reduce_gathers(bytes_in(tensor), size)) {
      at::Tensor in = tensor;
      at::Tensor all = at::empty({tensor.numel() * size}, tensor.options());
      return c10::make_intrusive<ThenWork>(_allgather_base(all, in, {}), [all, tensor, op, size] {
        reduce_in_rank_order(tensor, slices_of(all, size), op);
      });
    }
    const int tag = kSliceTags + 2 * static_cast<int>(slice_works_++ & kSliceTagMask);
    return post([&] {
      auto work = c10::make_intrusive<SliceWork>(
          tensor, SlicedReduction(tensor, op, getRank(), size), move_with(tag), move_with(tag + 1),
          ++seq_, options_->timeout);
      enqueue(work);
      return work;
    });
  }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors,
                    const c10d::BroadcastOptions& options) override {
    count_transport_bytes(options.rootRank == getRank() ? 0 : bytes_in(tensors.at(0)));
    return post([&] { return ProcessGroupGloo::broadcast(tensors, options); });
  }

  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override {
    std::vector<at::Tensor> out_bytes{as_bytes(outputs.at(0))};
    count_transport_bytes(options.rootRank == getRank() ? 0 : bytes_in(outputs.at(0)));
    std::vector<std::vector<at::Tensor>> in_bytes(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (const at::Tensor& piece : inputs[i]) {
        in_bytes[i].push_back(as_bytes(piece));
      }
    }
    return post([&] { return ProcessGroupGloo::scatter(out_bytes, in_bytes, options); });
  }

  WorkPtr alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_sizes,
                        std::vector<int64_t>& in_sizes,
                        const c10d::AllToAllOptions& options) override {
    at::Tensor out_bytes = as_bytes(out);
    at::Tensor in_bytes = as_bytes(in);
    count_transport_bytes(bytes_in(in) / getSize() * (getSize() - 1));
    return post([&] {
      return ProcessGroupGloo::alltoall_base(out_bytes, in_bytes, out_sizes, in_sizes, options);
    });
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return post([&] { return ProcessGroupGloo::barrier(options); });
  }

  void abort() override {
    const BlockedSignal guard(SIGPIPE);
    for (int peer = 0; peer < getSize(); ++peer) {
      if (peer != getRank()) {
        abort_by(peer);
      }
    }
  }

 private:
  // The backend outlives the works that it runs.
  SliceWork::Move move_with(int tag) {
    const auto send = [this, tag](const at::Tensor& bytes, int peer) {
      std::vector<at::Tensor> tensors{bytes};
      return post([&] { return ProcessGroupGloo::send(tensors, peer, tag); });
    };
    const auto receive = [this, tag](const at::Tensor& bytes, int peer) {
      count_transport_bytes(bytes_in(bytes));
      std::vector<at::Tensor> tensors{bytes};
      return post([&] { return ProcessGroupGloo::recv(tensors, peer, tag); });
    };
    return {send, receive};
  }

  // Does nothing if the connection to the peer has failed already, as those to others may not have.
  void abort_by(int peer) {
    try {
      std::vector<at::Tensor> nothing{at::empty({1}, at::device(at::kCPU).dtype(at::kByte))};
      post([&] { return recv(nothing, peer, kAbortTag); })->wait(Milliseconds(1));
    } catch (...) {
      // Meant to fail, and to make all that is pending fail with it.
    }
  }

  uint32_t slice_works_ = 0;  // so far; the same on all ranks
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size, Milliseconds timeout,
                                                    const std::string& own_address) {
  const BlockedSignal guard(SIGPIPE);
  const bool chosen = own_address.empty() || std::getenv("GLOO_SOCKET_IFNAME") != nullptr;
  auto options = chosen ? c10d::ProcessGroupGloo::Options::create_default(timeout)
                        : c10d::ProcessGroupGloo::Options::create(timeout);
  if (options->devices.empty()) {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(own_address));
  }
  auto backend = c10::make_intrusive<GlooBackend>(store, rank, size, std::move(options));
  backend->setTimeout(timeout + kAfterComm);
  // A rank that has connected may leave at once: those that still connect would take it for dead.
  backend->barrier({})->wait();
  return backend;
}

}  // namespace fsdp2
