#include "core/comm/gloo_backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "core/comm/rank_order.h"
#include "core/comm/sigpipe.h"

// Notes on Gloo (LibTorch 2.11, all seen):
// - Options::create_default already holds a device; a second one would make two contexts that
//   alternate by call, so that half of the calls go on "working" after a failure.
// - Sizes or order that differ between ranks abort the process or mix up data: the caller agrees on
//   them before.
// - Work::wait(timeout) leaves the work intact when the time is over.
// - Backend::abort does nothing, and the destructor joins workers that may hang in a call until its
//   time-out. A point-to-point receive that runs into its time-out, however, makes Gloo fail all
//   that is pending on the group's connections: that is our abort.
// - Every post enters the process's flight recorder, which keeps a map that it does not lock: two
//   threads that post to two groups can crash in it. So one post at a time in the process.

namespace fsdp2 {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Milliseconds = std::chrono::milliseconds;

// Below this an all-reduce gathers all values and sums them itself.
constexpr int64_t kGatheredBytes = 1 << 20;
// Comm gives up first, with a message that says more than Gloo's.
constexpr Milliseconds kAfterComm{1000};
constexpr int kAbortTag = 0x46534450;  // nobody sends with this tag

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

ReduceOp to_reduce_op(const c10d::ReduceOp& op) {
  if (op.op_ == c10d::ReduceOp::MAX) {
    return ReduceOp::kMax;
  }
  return op.op_ == c10d::ReduceOp::AVG ? ReduceOp::kAverage : ReduceOp::kSum;
}

WorkPtr post(const std::function<WorkPtr()>& call) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  return call();
}

class GlooBackend final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  WorkPtr _allgather_base(at::Tensor& out, at::Tensor& in,
                          const c10d::AllgatherOptions& options) override {
    at::Tensor out_bytes = as_bytes(out);
    at::Tensor in_bytes = as_bytes(in);
    return post([&] { return ProcessGroupGloo::_allgather_base(out_bytes, in_bytes, options); });
  }

  WorkPtr _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                               const c10d::ReduceScatterOptions& options) override {
    const at::Tensor slices = at::empty({in.numel()}, in.options());
    at::Tensor slices_bytes = as_bytes(slices);
    at::Tensor in_bytes = as_bytes(in);
    std::vector<int64_t> even;
    auto move = post(
        [&] { return ProcessGroupGloo::alltoall_base(slices_bytes, in_bytes, even, even, {}); });
    const ReduceOp op = to_reduce_op(options.reduceOp);
    return c10::make_intrusive<ThenWork>(std::move(move), [slices, out, op, size = getSize()] {
      reduce_in_rank_order(out, slices_of(slices, size), op);
    });
  }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const c10d::AllreduceOptions& options) override {
    const at::Tensor tensor = tensors.at(0);
    const ReduceOp op = to_reduce_op(options.reduceOp);
    const int size = getSize();
    if (size == 2 || static_cast<int64_t>(tensor.nbytes()) * size <= kGatheredBytes) {
      at::Tensor in = tensor;
      at::Tensor all = at::empty({tensor.numel() * size}, tensor.options());
      return c10::make_intrusive<ThenWork>(_allgather_base(all, in, {}), [all, tensor, op, size] {
        reduce_in_rank_order(tensor, slices_of(all, size), op);
      });
    }
    c10d::AllreduceOptions plain;
    plain.reduceOp = op == ReduceOp::kMax ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
    auto work = post([&] { return ProcessGroupGloo::allreduce(tensors, plain); });
    if (op != ReduceOp::kAverage) {
      return work;
    }
    return c10::make_intrusive<ThenWork>(std::move(work), [tensor, size] { tensor.div_(size); });
  }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors,
                    const c10d::BroadcastOptions& options) override {
    return post([&] { return ProcessGroupGloo::broadcast(tensors, options); });
  }

  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override {
    std::vector<at::Tensor> out_bytes{as_bytes(outputs.at(0))};
    std::vector<std::vector<at::Tensor>> in_bytes(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (const at::Tensor& piece : inputs[i]) {
        in_bytes[i].push_back(as_bytes(piece));
      }
    }
    return post([&] { return ProcessGroupGloo::scatter(out_bytes, in_bytes, options); });
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return post([&] { return ProcessGroupGloo::barrier(options); });
  }

  void abort() override {
    const NoSigpipe guard;
    for (int peer = 0; peer < getSize(); ++peer) {
      if (peer != getRank()) {
        abort_by(peer);
      }
    }
  }

 private:
  // Does nothing if the connection to the peer has failed already, as those to others may not have.
  void abort_by(int peer) {
    try {
      std::vector<at::Tensor> nothing{at::empty({1}, at::kByte)};
      post([&] { return recv(nothing, peer, kAbortTag); })->wait(Milliseconds(1));
    } catch (...) {
      // Meant to fail, and to make all that is pending fail with it.
    }
  }
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size, Milliseconds timeout,
                                                    bool one_machine) {
  const NoSigpipe guard;
  const bool chosen = std::getenv("GLOO_SOCKET_IFNAME") != nullptr;
  auto options = one_machine && !chosen ? c10d::ProcessGroupGloo::Options::create(timeout)
                                        : c10d::ProcessGroupGloo::Options::create_default(timeout);
  if (options->devices.empty()) {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  }
  auto backend = c10::make_intrusive<GlooBackend>(store, rank, size, std::move(options));
  backend->setTimeout(timeout + kAfterComm);
  return backend;
}

}  // namespace fsdp2
