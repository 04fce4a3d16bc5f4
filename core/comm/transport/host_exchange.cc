#include "core/comm/transport/host_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/comm/transport/transport_bytes.h"

namespace fsdp2 {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSpins = 100;  // looks at the rings before the first sleep
constexpr std::chrono::microseconds kSleep{500};
constexpr int kSleepsBetweenRollCalls = 16;
constexpr std::chrono::milliseconds kFlush{1000};
constexpr uint64_t kPublishedBytes = uint64_t{256} << 10;  // readers start while the rest is copied

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kScatter:
      return "scatter";
    case Collective::kBarrier:
      return "barrier";
    case Collective::kAllToAll:
      return "all_to_all";
  }
  return "an unknown collective";
}

}  // namespace

bool Pieces::done() {
  while (index_ < pieces_.size() && offset_ == pieces_[index_].bytes) {
    ++index_;
    offset_ = 0;
  }
  return index_ == pieces_.size();
}

Pieces::Piece Pieces::current() const {
  const Piece& piece = pieces_[index_];
  return {piece.data == nullptr ? nullptr : piece.data + offset_, piece.bytes - offset_};
}

uint64_t Pieces::total() const {
  uint64_t sum = 0;
  for (const Piece& piece : pieces_) {
    sum += piece.bytes;
  }
  return sum;
}

// The exchanges of this process.
class HostExchange::Registry {
 public:
  static Registry& instance() {
    static auto* const registry = new Registry;  // outlives static destructors
    return *registry;
  }
  void add(HostExchange* exchange) {
    const std::lock_guard<std::mutex> lock(mutex_);
    exchanges_.push_back(exchange);
  }
  void remove(HostExchange* exchange) {
    const std::lock_guard<std::mutex> lock(mutex_);
    exchanges_.erase(std::remove(exchanges_.begin(), exchanges_.end(), exchange), exchanges_.end());
  }
  void progress() {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) {
      for (HostExchange* exchange : exchanges_) {
        exchange->progress();
      }
    }
  }

 private:
  std::mutex mutex_;
  std::vector<HostExchange*> exchanges_;
};

HostExchange::HostExchange(std::unique_ptr<SharedSegment> segment, int rank, int size)
    : segment_(std::move(segment)),
      rank_(rank),
      size_(size),
      receiving_(static_cast<size_t>(size)) {
  Registry::instance().add(this);
}

// Until it is out of the registry, other threads of the process may be moving its data.
HostExchange::~HostExchange() {
  const auto deadline = Clock::now() + kFlush;
  while (has_to_send() && Clock::now() < deadline) {
    progress();
    std::this_thread::yield();
  }
  Registry::instance().remove(this);
}

void HostExchange::progress_all() { Registry::instance().progress(); }

OperationPtr HostExchange::make(Collective collective, std::vector<at::Tensor> keep) {
  auto operation = std::make_shared<Operation>();
  const auto ranks = static_cast<size_t>(size_);
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

void HostExchange::post(const OperationPtr& operation) {
  operation->announcement.bytes = operation->send.total() - sizeof(Announcement);
  for (const Pieces& pieces : operation->receive) {
    operation->expected.push_back(pieces.total() - sizeof(Announcement));
  }
  operation->sources_left = size_ - 1;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    operation->error = broken_;
    sending_.push_back(operation);
    for (int source = 0; source < size_; ++source) {
      if (source != rank_) {
        receiving_[static_cast<size_t>(source)].push_back(operation);
      }
    }
  }
  progress();
}

bool HostExchange::wait(Operation& operation, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (int round = 0;; ++round) {
    const uint32_t seen = segment_->bell();
    progress_all();
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
      if (round % kSleepsBetweenRollCalls == 0) {
        give_up_on_leavers(operation);
      }
    }
  }
}

bool HostExchange::finished(const Operation& operation) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return operation.done || operation.error != nullptr;
}

std::exception_ptr HostExchange::error_of(const Operation& operation) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return operation.error;
}

void HostExchange::abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
}

// ---- moving data

void HostExchange::progress() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock() && !aborted_) {
    send_some();
    if (receive_some()) {
      segment_->ring_bell();
    }
  }
}

bool HostExchange::has_to_send() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !aborted_ && broken_ == nullptr && !sending_.empty();
}

uint64_t HostExchange::room() const {
  const uint64_t written = segment_->written(rank_).load(std::memory_order_relaxed);
  uint64_t in_use = 0;
  for (int reader = 0; reader < size_; ++reader) {
    if (reader != rank_) {
      in_use =
          std::max(in_use, written - segment_->read(rank_, reader).load(std::memory_order_acquire));
    }
  }
  return SharedSegment::kRingBytes - in_use;
}

uint64_t HostExchange::available(int source) const {
  return segment_->written(source).load(std::memory_order_acquire) -
         segment_->read(source, rank_).load(std::memory_order_relaxed);
}

void HostExchange::send_some() {
  std::atomic<uint64_t>& written = segment_->written(rank_);
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
    const Pieces::Piece piece = operation.send.current();
    const uint64_t bytes =
        std::min({piece.bytes, room(), SharedSegment::kRingBytes - offset, kPublishedBytes});
    if (bytes == 0) {
      break;
    }
    std::memcpy(segment_->ring(rank_) + offset, piece.data, bytes);
    written.store(position + bytes, std::memory_order_release);
    segment_->ring_bell();
    operation.send.advance(bytes);
  }
}

bool HostExchange::receive_some() {
  bool moved = false;
  for (int source = 0; source < size_ && broken_ == nullptr; ++source) {
    moved |= source != rank_ && receive_from(source);
  }
  return moved;
}

bool HostExchange::receive_from(int source) {
  bool moved = false;
  auto& queue = receiving_[static_cast<size_t>(source)];
  std::atomic<uint64_t>& read = segment_->read(source, rank_);
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
    const Pieces::Piece piece = pieces.current();
    const uint64_t bytes =
        std::min({piece.bytes, available(source), SharedSegment::kRingBytes - offset});
    if (bytes == 0) {
      break;
    }
    if (piece.data != nullptr) {
      std::memcpy(piece.data, segment_->ring(source) + offset, bytes);
      if (pieces.first_is_done()) {  // no announcement
        count_transport_bytes(static_cast<int64_t>(bytes));
      }
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

void HostExchange::check_announcement(const Operation& operation, int source) {
  const Announcement& own = operation.announcement;
  const Announcement& other = operation.announced[static_cast<size_t>(source)];
  const uint64_t expected = operation.expected[static_cast<size_t>(source)];
  if (other.collective != own.collective || other.number != own.number || other.bytes != expected) {
    break_off(fmt::format(
        "the ranks disagree: rank {} of the group sends {} bytes by {} as call {}, expected {} "
        "bytes by {} as call {}",
        source, other.bytes, name_of(other.collective), other.number, expected,
        name_of(own.collective), own.number));
  }
}

void HostExchange::settle(Operation& operation) {
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
void HostExchange::break_off(const std::string& reason) {
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

void HostExchange::give_up_on_leavers(Operation& operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || operation.done || broken_ != nullptr || !segment_->has_left(peer)) {
      continue;
    }
    const bool lacks = !operation.receive[static_cast<size_t>(peer)].done() &&
                       available(peer) == 0;  // looked at after it has left
    if (lacks || (!operation.sent && room() == 0)) {
      break_off(fmt::format("the process of rank {} of the group has ended", peer));
    }
  }
}

}  // namespace fsdp2
