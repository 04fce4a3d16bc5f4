#include "core/comm/transport/thread_backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/comm/transport/rank_order.h"
#include "core/comm/transport/reduce_op.h"
#include "core/comm/transport/transport_bytes.h"

namespace fsdp2 {

class ThreadGroup {
 public:
  // What one rank brings to a call.
  struct Post {
    at::Tensor in;
    at::Tensor out;
  };

  // Does the share of one rank, whoever runs it.
  using Piece = std::function<void(const std::vector<Post>& posts, int rank)>;

  struct Slot {
    Slot(std::string call, int rank, int size, Piece piece)
        : call(std::move(call)), first(rank), posts(size), missing(size), piece(std::move(piece)) {
      std::iota(missing.begin(), missing.end(), 0);
    }

    bool complete() const { return missing.empty(); }
    bool done() const { return pieces_done == static_cast<int>(posts.size()); }

    const std::string call;  // op, dtype and size, the same on all ranks
    const int first;         // the rank that came first
    std::vector<Post> posts;
    std::vector<int> missing;  // ranks that have not posted
    const Piece piece;
    int pieces_taken = 0;
    int pieces_done = 0;
    std::string error;
  };

  explicit ThreadGroup(int size) : size_(size), left_(size, false) {}
  int size() const { return size_; }

  std::shared_ptr<Slot> post(int rank, uint64_t number, const std::string& call, Post tensors,
                             Piece piece) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<Slot>& entry = slots_[number];
    if (entry == nullptr) {
      entry = std::make_shared<Slot>(call, rank, size_, std::move(piece));
    }
    const std::shared_ptr<Slot> slot = entry;
    if (slot->call != call && slot->error.empty()) {
      slot->error = fmt::format("ranks disagree about call {}: {} on rank {}, {} on rank {}",
                                number, slot->call, slot->first, call, rank);
    }
    slot->posts[rank] = std::move(tensors);
    slot->missing.erase(std::find(slot->missing.begin(), slot->missing.end(), rank));
    if (slot->complete()) {
      slots_.erase(number);
    }
    changed_.notify_all();
    return slot;
  }

  // Takes part in the call until it is done. False if the time is over before that.
  bool wait(Slot& slot, std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      const std::string error = find_error(slot);
      FSDP2_CHECK(error.empty(), Code::kComm, "{}", error);
      if (slot.done()) {
        return true;
      }
      if (slot.complete() && slot.pieces_taken < size_) {
        run_piece(slot, lock);
      } else if (timeout == kNoTimeout) {
        changed_.wait(lock);
      } else if (changed_.wait_until(lock, deadline) == std::cv_status::timeout) {
        return slot.done();
      }
    }
  }

  std::string error(const Slot& slot) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return find_error(slot);
  }

  bool done(const Slot& slot) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return slot.done();
  }

  void leave(int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    left_[rank] = true;
    changed_.notify_all();
  }

  void abort() {
    std::unique_lock<std::mutex> lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  std::string find_error(const Slot& slot) const {
    if (!slot.error.empty() || slot.done()) {
      return slot.error;
    }
    if (aborted_) {
      return "the group was aborted";
    }
    const auto gone = std::find_if(slot.missing.begin(), slot.missing.end(),
                                   [this](int rank) { return left_[rank]; });
    return gone == slot.missing.end() ? "" : fmt::format("rank {} has left the group", *gone);
  }

  void run_piece(Slot& slot, std::unique_lock<std::mutex>& lock) {
    const int rank = slot.pieces_taken++;
    ++running_;
    lock.unlock();
    std::string error;
    try {
      slot.piece(slot.posts, rank);
    } catch (...) {
      error = current_exception_text();
    }
    lock.lock();
    --running_;
    ++slot.pieces_done;
    if (slot.error.empty()) {
      slot.error = error;
    }
    changed_.notify_all();
  }

  const int size_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::shared_ptr<Slot>> slots_;  // by call number, until all have posted
  std::vector<bool> left_;
  bool aborted_ = false;
  int running_ = 0;  // pieces in work
};

namespace {

using Post = ThreadGroup::Post;
using Piece = ThreadGroup::Piece;
using Slot = ThreadGroup::Slot;

class ThreadWork final : public c10d::Work {
 public:
  ThreadWork(std::shared_ptr<ThreadGroup> group, std::shared_ptr<Slot> slot)
      : group_(std::move(group)), slot_(std::move(slot)) {}

  bool wait(std::chrono::milliseconds timeout) override { return group_->wait(*slot_, timeout); }
  bool isCompleted() override { return group_->done(*slot_) || exception() != nullptr; }
  bool isSuccess() const override { return group_->done(*slot_) && exception() == nullptr; }

  std::exception_ptr exception() const override {
    const std::string error = group_->error(*slot_);
    return error.empty() ? nullptr : std::make_exception_ptr(Error(Code::kComm, error));
  }

 private:
  std::shared_ptr<ThreadGroup> group_;
  std::shared_ptr<Slot> slot_;
};

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

const char* name_of(ReduceOp op) {
  return op == ReduceOp::kSum ? "sum" : op == ReduceOp::kAverage ? "average" : "max";
}

std::string describe(const std::string& call, const at::Tensor& tensor) {
  return fmt::format("{} of {} x {}", call, tensor.numel(), c10::toString(tensor.scalar_type()));
}

class ThreadBackend final : public c10d::Backend {
 public:
  ThreadBackend(std::shared_ptr<ThreadGroup> group, int rank)
      : Backend(rank, group->size()), group_(std::move(group)) {}
  ~ThreadBackend() override { group_->leave(rank_); }

  const std::string getBackendName() const override { return "thread"; }
  void abort() override { group_->abort(); }

  WorkPtr _allgather_base(at::Tensor& out, at::Tensor& in,
                          const c10d::AllgatherOptions& /*options*/) override {
    return post(describe("all_gather", in), {in, out},
                [](const std::vector<Post>& posts, int rank) {
                  auto* to = static_cast<char*>(posts[rank].out.mutable_data_ptr());
                  for (const Post& post : posts) {
                    copy_bytes(to, post.in.const_data_ptr(), post.in.nbytes());
                    to += post.in.nbytes();
                  }
                });
  }

  WorkPtr _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                               const c10d::ReduceScatterOptions& options) override {
    const ReduceOp op = to_reduce_op(options.reduceOp);
    return post(describe(fmt::format("reduce_scatter({})", name_of(op)), in), {in, out},
                [op](const std::vector<Post>& posts, int rank) {
                  const int64_t length = posts[rank].out.numel();
                  std::vector<at::Tensor> parts;
                  for (const Post& post : posts) {
                    parts.push_back(post.in.narrow(0, rank * length, length));
                  }
                  reduce_in_rank_order(posts[rank].out, parts, op);
                });
  }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const c10d::AllreduceOptions& options) override {
    const ReduceOp op = to_reduce_op(options.reduceOp);
    const at::Tensor& tensor = tensors.at(0);
    return post(describe(fmt::format("all_reduce({})", name_of(op)), tensor), {tensor, tensor},
                [op](const std::vector<Post>& posts, int rank) {
                  const auto size = static_cast<int64_t>(posts.size());
                  const int64_t numel = posts[0].in.numel();
                  const int64_t start = numel * rank / size;
                  const int64_t length = numel * (rank + 1) / size - start;
                  std::vector<at::Tensor> parts;
                  for (const Post& post : posts) {
                    parts.push_back(post.in.narrow(0, start, length));
                  }
                  reduce_in_rank_order(parts[0], parts, op);
                  for (const at::Tensor& part : parts) {
                    copy_bytes(part.mutable_data_ptr(), parts[0].const_data_ptr(), part.nbytes());
                  }
                });
  }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors,
                    const c10d::BroadcastOptions& options) override {
    const int64_t root = options.rootRank;
    const at::Tensor& tensor = tensors.at(0);
    return post(describe(fmt::format("broadcast from {}", root), tensor), {tensor, tensor},
                [root](const std::vector<Post>& posts, int rank) {
                  const at::Tensor& from = posts[root].in;
                  copy_bytes(posts[rank].out.mutable_data_ptr(), from.const_data_ptr(),
                             from.nbytes());
                });
  }

  // A post's input is the root's pieces, one after the other; the others' are undefined.
  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override {
    const int64_t root = options.rootRank;
    const at::Tensor& out = outputs.at(0);
    const at::Tensor pieces = inputs.empty() ? at::Tensor() : at::cat(inputs.at(0));
    return post(describe(fmt::format("scatter from {}", root), out), {pieces, out},
                [root](const std::vector<Post>& posts, int rank) {
                  const at::Tensor& to = posts[rank].out;
                  const auto* from = static_cast<const char*>(posts[root].in.const_data_ptr());
                  copy_bytes(to.mutable_data_ptr(), from + to.nbytes() * rank, to.nbytes());
                });
  }

  WorkPtr alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& /*out_sizes*/,
                        std::vector<int64_t>& /*in_sizes*/,
                        const c10d::AllToAllOptions& /*options*/) override {
    return post(describe("all_to_all", in), {in, out},
                [](const std::vector<Post>& posts, int rank) {
                  const size_t bytes = posts[rank].out.nbytes() / posts.size();
                  auto* to = static_cast<char*>(posts[rank].out.mutable_data_ptr());
                  for (const Post& post : posts) {
                    const auto* from = static_cast<const char*>(post.in.const_data_ptr());
                    copy_bytes(to, from + bytes * rank, bytes);
                    to += bytes;
                  }
                });
  }

  WorkPtr barrier(const c10d::BarrierOptions& /*options*/) override {
    return post("barrier", {}, [](const std::vector<Post>&, int) {});
  }

 private:
  WorkPtr post(const std::string& call, Post tensors, Piece piece) {
    auto slot = group_->post(rank_, calls_++, call, std::move(tensors), std::move(piece));
    return c10::make_intrusive<ThreadWork>(group_, std::move(slot));
  }

  std::shared_ptr<ThreadGroup> group_;
  uint64_t calls_ = 0;
};

}  // namespace

std::shared_ptr<ThreadGroup> make_thread_group(int size) {
  return std::make_shared<ThreadGroup>(size);
}

c10::intrusive_ptr<c10d::Backend> make_thread_backend(std::shared_ptr<ThreadGroup> group,
                                                      int rank) {
  return c10::make_intrusive<ThreadBackend>(std::move(group), rank);
}

}  // namespace fsdp2
