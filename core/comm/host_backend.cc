#include "core/comm/host_backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "core/comm/rank_order.h"

namespace fsdp2 {

namespace {

using Clock = std::chrono::steady_clock;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

constexpr int kSpins = 100;  // looks at the rings before the first sleep
constexpr std::chrono::microseconds kSleep{500};
constexpr std::chrono::milliseconds kFlush{1000};
constexpr uint64_t kPublishedBytes = uint64_t{256} << 10;  // readers start while the rest is copied
constexpr int64_t kGatheredBytes = 1 << 20;  // below, an all-reduce gathers all and sums itself

// What goes before the bytes of each collective in a rank's stream, so that ranks that call
// different ones get an error and not each other's data.
struct Announcement {
  uint32_t collective;
  uint32_t number;
  uint64_t bytes;
};

enum Collective : uint32_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kScatter,
  kBarrier
};

const char* name_of(uint32_t collective) {
  static const char* const kNames[] = {"all_gather", "reduce_scatter", "all_reduce",
                                       "broadcast",  "scatter",        "barrier"};
  return collective < std::size(kNames) ? kNames[collective] : "an unknown collective";
}

// A run of bytes in memory; as a destination null skips what is another rank's.
struct Piece {
  std::byte* data;
  uint64_t bytes;
};

// Bytes that pass through a list of pieces, a part at a time.
class Pieces {
 public:
  void add(void* data, int64_t bytes) {
    pieces_.push_back({static_cast<std::byte*>(data), static_cast<uint64_t>(bytes)});
  }
  bool done() {
    while (index_ < pieces_.size() && offset_ == pieces_[index_].bytes) {
      ++index_;
      offset_ = 0;
    }
    return index_ == pieces_.size();
  }
  bool first_is_done() const { return index_ > 0 || offset_ == pieces_.front().bytes; }
  // The rest of the current piece. REQUIRES: !done().
  Piece current() const {
    const Piece& piece = pieces_[index_];
    return {piece.data == nullptr ? nullptr : piece.data + offset_, piece.bytes - offset_};
  }
  void advance(uint64_t bytes) { offset_ += bytes; }
  uint64_t total() const {
    uint64_t sum = 0;
    for (const Piece& piece : pieces_) {
      sum += piece.bytes;
    }
    return sum;
  }

 private:
  std::vector<Piece> pieces_;
  size_t index_ = 0;
  uint64_t offset_ = 0;
};

// One collective on this rank. The first piece from and to each rank is the announcement.
struct Operation {
  Announcement announcement{};
  Pieces send;
  std::vector<Pieces> receive;          // by source
  std::vector<Announcement> announced;  // by source
  std::vector<uint64_t> expected;       // bytes, by source
  std::shared_ptr<Operation> after;     // must be done before anything of this one is sent
  std::function<void()> finish;         // once everything is received
  std::vector<at::Tensor> keep;         // whose memory the pieces are in
  bool sent = false;
  int sources_left = 0;
  bool done = false;
  std::exception_ptr error;
};
using OperationPtr = std::shared_ptr<Operation>;

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

int64_t size_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

ReduceOp to_reduce_op(const c10d::ReduceOp& op) {
  if (op.op_ == c10d::ReduceOp::MAX) {
    return ReduceOp::kMax;
  }
  return op.op_ == c10d::ReduceOp::AVG ? ReduceOp::kAverage : ReduceOp::kSum;
}

class HostBackend;

// The backends of this process. A rank that waits in one group moves the data of all of them:
// another rank may be waiting in another group first.
class Backends {
 public:
  static Backends& all() {
    static auto* const backends = new Backends;  // outlives static destructors
    return *backends;
  }
  void add(HostBackend* backend) {
    const std::lock_guard<std::mutex> lock(mutex_);
    backends_.push_back(backend);
  }
  void remove(HostBackend* backend) {
    const std::lock_guard<std::mutex> lock(mutex_);
    backends_.erase(std::remove(backends_.begin(), backends_.end(), backend), backends_.end());
  }
  void progress();

 private:
  std::mutex mutex_;
  std::vector<HostBackend*> backends_;
};

class HostWork final : public c10d::Work {
 public:
  HostWork(c10::intrusive_ptr<HostBackend> backend, OperationPtr operation)
      : backend_(std::move(backend)), operation_(std::move(operation)) {}

  bool wait(std::chrono::milliseconds timeout) override;
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;

 private:
  c10::intrusive_ptr<HostBackend> backend_;
  OperationPtr operation_;
};

class HostBackend final : public c10d::Backend {
 public:
  HostBackend(std::unique_ptr<SharedSegment> segment, int rank, int size)
      : Backend(rank, size), segment_(std::move(segment)), receiving_(static_cast<size_t>(size)) {
    Backends::all().add(this);
  }
  // What was posted and never waited for still has to reach the others.
  ~HostBackend() override {
    const auto deadline = Clock::now() + kFlush;
    while (!aborted_ && !sending_.empty() && Clock::now() < deadline) {
      progress();
      std::this_thread::yield();
    }
    Backends::all().remove(this);
  }

  const std::string getBackendName() const override { return "host"; }

  void abort() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
  }

  WorkPtr _allgather_base(at::Tensor& out, at::Tensor& in,
                          const c10d::AllgatherOptions& /*options*/) override {
    const OperationPtr operation = make(kAllGather, {out, in});
    gather(*operation, out, in);
    return post(operation);
  }

  WorkPtr _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                               const c10d::ReduceScatterOptions& options) override {
    const OperationPtr operation = make(kReduceScatter, {out, in});
    scatter_and_reduce(*operation, out, in, to_reduce_op(options.reduceOp));
    return post(operation);
  }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const c10d::AllreduceOptions& options) override {
    const at::Tensor tensor = tensors.at(0);
    const ReduceOp op = to_reduce_op(options.reduceOp);
    if (size_of(tensor) * getSize() <= kGatheredBytes || getSize() == 2) {
      return reduce_everywhere(tensor, op);
    }
    return reduce_in_slices(tensor, op);
  }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors,
                    const c10d::BroadcastOptions& options) override {
    const at::Tensor tensor = tensors.at(0);
    const auto root = static_cast<int>(options.rootRank);
    const OperationPtr operation = make(kBroadcast, {tensor});
    if (root == getRank()) {
      operation->send.add(bytes_of(tensor), size_of(tensor));
    } else {
      operation->receive[static_cast<size_t>(root)].add(bytes_of(tensor), size_of(tensor));
    }
    return post(operation);
  }

  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override {
    const at::Tensor out = outputs.at(0);
    const auto root = static_cast<int>(options.rootRank);
    const OperationPtr operation = make(kScatter, {out});
    if (root != getRank()) {
      receive_own_of_slices(*operation, root, bytes_of(out), size_of(out));
      return post(operation);
    }
    for (int peer = 0; peer < getSize(); ++peer) {
      const at::Tensor& piece = inputs.at(0).at(static_cast<size_t>(peer));
      operation->keep.push_back(piece);
      if (peer == root) {
        std::memcpy(bytes_of(out), bytes_of(piece), piece.nbytes());
      } else {
        operation->send.add(bytes_of(piece), size_of(piece));
      }
    }
    return post(operation);
  }

  WorkPtr barrier(const c10d::BarrierOptions& /*options*/) override {
    return post(make(kBarrier, {}));  // announcements alone
  }

  // Moves what can be moved now. Any thread.
  void progress() {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (lock.owns_lock() && !aborted_) {
      send_some();
      if (receive_some()) {
        segment_->ring_bell();
      }
    }
  }

  bool wait(Operation& operation, std::chrono::milliseconds timeout) {
    const auto deadline = Clock::now() + timeout;
    for (int round = 0;; ++round) {
      const uint32_t seen = segment_->bell();
      Backends::all().progress();
      if (finished(operation)) {
        if (operation.error != nullptr) {
          std::rethrow_exception(operation.error);
        }
        return true;
      }
      if (Clock::now() >= deadline) {
        give_up_on_leavers(operation);
        return false;
      }
      if (round < kSpins) {
        std::this_thread::yield();
      } else {
        segment_->sleep(seen, kSleep);
        if (round % 16 == 0) {
          give_up_on_leavers(operation);
        }
      }
    }
  }

  bool finished(const Operation& operation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return operation.done || operation.error != nullptr;
  }

  std::exception_ptr error_of(const Operation& operation) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return operation.error;
  }

 private:
  OperationPtr make(Collective collective, std::vector<at::Tensor> keep) {
    auto operation = std::make_shared<Operation>();
    const auto ranks = static_cast<size_t>(getSize());
    operation->announcement = {collective, number_++, 0};
    operation->send.add(&operation->announcement, sizeof(Announcement));
    operation->receive.resize(ranks);
    operation->announced.resize(ranks);
    for (size_t source = 0; source < ranks; ++source) {
      operation->receive[source].add(&operation->announced[source], sizeof(Announcement));
    }
    operation->keep = std::move(keep);
    return operation;
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

  void gather(Operation& operation, const at::Tensor& out, const at::Tensor& in) {
    const int64_t bytes = size_of(in);
    for (int source = 0; source < getSize(); ++source) {
      std::byte* const place = bytes_of(out) + source * bytes;
      if (source != getRank()) {
        operation.receive[static_cast<size_t>(source)].add(place, bytes);
      } else if (bytes > 0 && place != bytes_of(in)) {
        std::memcpy(place, bytes_of(in), static_cast<size_t>(bytes));
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
    const OperationPtr operation = make(kAllReduce, {tensor, all});
    gather(*operation, all, tensor);
    operation->finish = [tensor, all, op, size = getSize()] {
      reduce_in_rank_order(tensor, all.view({size, -1}).unbind(0), op);
    };
    return post(operation);
  }

  // Each rank reduces one slice and gives it to the others.
  WorkPtr reduce_in_slices(const at::Tensor& tensor, ReduceOp op) {
    const int64_t length = (tensor.numel() + getSize() - 1) / getSize();
    at::Tensor padded = tensor;
    if (length * getSize() != tensor.numel()) {
      padded = at::empty({length * getSize()}, tensor.options());
      padded.narrow(0, 0, tensor.numel()).copy_(tensor);
      padded.narrow(0, tensor.numel(), padded.numel() - tensor.numel()).zero_();
    }
    const at::Tensor slice = at::empty({length}, tensor.options());
    const OperationPtr reduce = make(kAllReduce, {padded, slice});
    scatter_and_reduce(*reduce, slice, padded, op);
    post(reduce);
    const OperationPtr share = make(kAllReduce, {tensor, padded, slice});
    share->after = reduce;
    for (int source = 0; source < getSize(); ++source) {
      if (source != getRank()) {
        share->receive[static_cast<size_t>(source)].add(bytes_of(padded) + source * size_of(slice),
                                                        size_of(slice));
      }
    }
    share->send.add(bytes_of(slice), size_of(slice));
    share->finish = [tensor, padded, slice, length, rank = getRank()] {
      padded.narrow(0, rank * length, length).copy_(slice);
      if (!padded.is_same(tensor)) {
        tensor.copy_(padded.narrow(0, 0, tensor.numel()));
      }
    };
    return post(share);
  }

  WorkPtr post(const OperationPtr& operation) {
    operation->announcement.bytes = operation->send.total() - sizeof(Announcement);
    for (const Pieces& pieces : operation->receive) {
      operation->expected.push_back(pieces.total() - sizeof(Announcement));
    }
    operation->sources_left = getSize() - 1;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      operation->error = broken_;
      sending_.push_back(operation);
      for (int source = 0; source < getSize(); ++source) {
        if (source != getRank()) {
          receiving_[static_cast<size_t>(source)].push_back(operation);
        }
      }
    }
    progress();
    return c10::make_intrusive<HostWork>(
        c10::intrusive_ptr<HostBackend>::unsafe_reclaim_from_nonowning(this), operation);
  }

  // ---- moving data, with the lock held

  uint64_t room() const {
    const uint64_t written = segment_->written(getRank()).load(std::memory_order_relaxed);
    uint64_t in_use = 0;
    for (int reader = 0; reader < getSize(); ++reader) {
      if (reader != getRank()) {
        in_use = std::max(
            in_use, written - segment_->read(getRank(), reader).load(std::memory_order_acquire));
      }
    }
    return SharedSegment::kRingBytes - in_use;
  }

  uint64_t available(int source) const {
    return segment_->written(source).load(std::memory_order_acquire) -
           segment_->read(source, getRank()).load(std::memory_order_relaxed);
  }

  void send_some() {
    std::atomic<uint64_t>& written = segment_->written(getRank());
    while (!sending_.empty() && broken_ == nullptr) {
      Operation& operation = *sending_.front();
      if (operation.after && !operation.after->done) {
        break;
      }
      if (operation.send.done()) {
        operation.sent = true;
        settle(operation);
        sending_.pop_front();
        continue;
      }
      const uint64_t position = written.load(std::memory_order_relaxed);
      const uint64_t offset = position % SharedSegment::kRingBytes;
      const Piece piece = operation.send.current();
      const uint64_t bytes =
          std::min({piece.bytes, room(), SharedSegment::kRingBytes - offset, kPublishedBytes});
      if (bytes == 0) {
        break;
      }
      std::memcpy(segment_->ring(getRank()) + offset, piece.data, bytes);
      written.store(position + bytes, std::memory_order_release);
      segment_->ring_bell();
      operation.send.advance(bytes);
    }
  }

  bool receive_some() {
    bool moved = false;
    for (int source = 0; source < getSize() && broken_ == nullptr; ++source) {
      moved |= source != getRank() && receive_from(source);
    }
    return moved;
  }

  bool receive_from(int source) {
    bool moved = false;
    auto& queue = receiving_[static_cast<size_t>(source)];
    std::atomic<uint64_t>& read = segment_->read(source, getRank());
    while (!queue.empty() && broken_ == nullptr) {
      Operation& operation = *queue.front();
      Pieces& pieces = operation.receive[static_cast<size_t>(source)];
      if (pieces.done()) {
        --operation.sources_left;
        settle(operation);
        queue.pop_front();
        continue;
      }
      const uint64_t position = read.load(std::memory_order_relaxed);
      const uint64_t offset = position % SharedSegment::kRingBytes;
      const Piece piece = pieces.current();
      const uint64_t bytes =
          std::min({piece.bytes, available(source), SharedSegment::kRingBytes - offset});
      if (bytes == 0) {
        break;
      }
      if (piece.data != nullptr) {
        std::memcpy(piece.data, segment_->ring(source) + offset, bytes);
      }
      read.store(position + bytes, std::memory_order_release);
      const bool was_announced = pieces.first_is_done();
      pieces.advance(bytes);
      moved = true;
      if (!was_announced && pieces.first_is_done()) {
        check_announcement(operation, source);
      }
    }
    return moved;
  }

  void check_announcement(const Operation& operation, int source) {
    const Announcement& own = operation.announcement;
    const Announcement& other = operation.announced[static_cast<size_t>(source)];
    const uint64_t expected = operation.expected[static_cast<size_t>(source)];
    if (other.collective != own.collective || other.number != own.number ||
        other.bytes != expected) {
      break_off(fmt::format(
          "the ranks disagree: rank {} of the group sends {} bytes by {} as call {}, expected {} "
          "bytes by {} as call {}",
          source, other.bytes, name_of(other.collective), other.number, expected,
          name_of(own.collective), own.number));
    }
  }

  void settle(Operation& operation) {
    if (!operation.sent || operation.sources_left > 0 || operation.done) {
      return;
    }
    try {
      if (operation.finish) {
        operation.finish();
      }
    } catch (...) {
      operation.error = std::current_exception();
    }
    operation.done = true;
    operation.finish = nullptr;
    operation.keep.clear();
  }

  // The streams are of no use any more: ends all that is pending and all that is to come.
  void break_off(const std::string& reason) {
    broken_ = std::make_exception_ptr(std::runtime_error(reason));
    for (const OperationPtr& operation : sending_) {
      operation->error = broken_;
    }
    for (const auto& queue : receiving_) {
      for (const OperationPtr& operation : queue) {
        operation->error = broken_;
      }
    }
  }

  void give_up_on_leavers(Operation& operation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int peer = 0; peer < getSize(); ++peer) {
      if (peer == getRank() || operation.done || broken_ != nullptr || !segment_->has_left(peer)) {
        continue;
      }
      const bool lacks = !operation.receive[static_cast<size_t>(peer)].done() &&
                         available(peer) == 0;  // looked at after it has left
      if (lacks || (!operation.sent && room() == 0)) {
        break_off(fmt::format("the process of rank {} of the group has ended", peer));
      }
    }
  }

  std::unique_ptr<SharedSegment> segment_;
  mutable std::mutex mutex_;
  uint32_t number_ = 0;
  bool aborted_ = false;
  std::exception_ptr broken_;
  std::deque<OperationPtr> sending_;
  std::vector<std::deque<OperationPtr>> receiving_;  // by source
};

void Backends::progress() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) {
    for (HostBackend* backend : backends_) {
      backend->progress();
    }
  }
}

bool HostWork::wait(std::chrono::milliseconds timeout) {
  return backend_->wait(*operation_, timeout);
}

bool HostWork::isCompleted() {
  Backends::all().progress();
  return backend_->finished(*operation_);
}

bool HostWork::isSuccess() const {
  return backend_->finished(*operation_) && exception() == nullptr;
}

std::exception_ptr HostWork::exception() const { return backend_->error_of(*operation_); }

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_host_backend(std::unique_ptr<SharedSegment> segment,
                                                    int rank, int size) {
  return c10::make_intrusive<HostBackend>(std::move(segment), rank, size);
}

}  // namespace fsdp2
