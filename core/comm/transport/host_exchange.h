// Streams of bytes between the processes of a group through a SharedSegment.
//
// An Operation says what one collective sends and where it puts what it receives. Operations of a
// group go through the streams in the order in which they were posted, each behind an announcement,
// so that ranks that call different ones get an error and not each other's data.
//
// There are no threads: data moves while a rank posts or waits. A rank that waits in one exchange
// moves the data of all exchanges of its process, because another rank may first be waiting in
// another one. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/comm/transport/shared_segment.h"

namespace fsdp2 {

enum class Collective : uint32_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kScatter,
  kBarrier,
  kAllToAll
};

struct Announcement {
  Collective collective;
  uint32_t number;  // of the call in its group
  uint64_t bytes;   // that follow
};

// A list of runs of bytes in memory that data passes through a part at a time.
class Pieces {
 public:
  struct Piece {
    std::byte* data;  // null, as a destination: skipped
    uint64_t bytes;
  };

  void add(void* data, int64_t bytes) {
    pieces_.push_back({static_cast<std::byte*>(data), static_cast<uint64_t>(bytes)});
  }
  bool done();
  bool first_is_done() const { return index_ > 0 || offset_ == pieces_.front().bytes; }
  // The rest of the current piece. REQUIRES: !done().
  Piece current() const;
  void advance(uint64_t bytes) { offset_ += bytes; }
  uint64_t total() const;

 private:
  std::vector<Piece> pieces_;
  size_t index_ = 0;
  uint64_t offset_ = 0;
};

// One collective on this rank. The first piece from and to each rank is the announcement.
struct Operation {
  // Filled by the caller between HostExchange::make and post.
  Pieces send;                       // to all others alike
  std::vector<Pieces> receive;       // by source
  std::shared_ptr<Operation> after;  // must be done before anything of this one is sent
  std::function<void()> finish;      // once everything is received
  std::vector<at::Tensor> keep;      // whose memory the pieces are in

  // The exchange's.
  Announcement announcement{};
  std::vector<Announcement> announced;  // by source
  std::vector<uint64_t> expected;       // bytes, by source
  bool sent = false;
  int sources_left = 0;
  bool done = false;
  std::exception_ptr error;
};
using OperationPtr = std::shared_ptr<Operation>;

class HostExchange {
 public:
  HostExchange(std::unique_ptr<SharedSegment> segment, int rank, int size);
  // Work that was posted and never waited for still has to reach the others: waits a second at
  // most.
  ~HostExchange();
  HostExchange(const HostExchange&) = delete;
  HostExchange& operator=(const HostExchange&) = delete;

  // One thread makes and posts, in the same order on all ranks.
  OperationPtr make(Collective collective, std::vector<at::Tensor> keep);
  void post(const OperationPtr& operation);

  // False if the time is over. Throws the operation's error.
  bool wait(Operation& operation, std::chrono::milliseconds timeout);
  bool finished(const Operation& operation) const;
  std::exception_ptr error_of(const Operation& operation) const;
  void abort();  // moves nothing any more

  // Moves what can be moved now, in all exchanges of the process.
  static void progress_all();

 private:
  class Registry;

  void progress();
  bool has_to_send() const;
  // With the lock held:
  uint64_t room() const;
  uint64_t available(int source) const;
  void send_some();
  bool receive_some();
  bool receive_from(int source);
  void check_announcement(const Operation& operation, int source);
  static void settle(Operation& operation);
  void break_off(const std::string& reason);

  void give_up_on_leavers(Operation& operation);

  std::unique_ptr<SharedSegment> segment_;
  int rank_;
  int size_;
  mutable std::mutex mutex_;
  uint32_t number_ = 0;
  bool aborted_ = false;
  std::exception_ptr broken_;  // the streams are of no use any more
  std::deque<OperationPtr> sending_;
  std::vector<std::deque<OperationPtr>> receiving_;  // by source
};

}  // namespace fsdp2
