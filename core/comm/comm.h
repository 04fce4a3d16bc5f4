// A group of ranks and the collectives among them, on flat contiguous tensors.
//
// Comm stands above any c10d backend (Gloo, NCCL, ranks as threads, fake) and adds what FSDP needs
// and backends lack: byte and call counters, time-outs, failure notice, and a reduce-scatter that
// moves the minimum and sums in rank order, so that results do not depend on timing.
//
// All ranks of the group call the same collectives in the same order with the same sizes and
// dtypes. Otherwise Gloo aborts or corrupts memory, so agree on them first (agreement.h); with
// FSDP2_DEBUG=detail the ranks compare each call before it runs (collective_check.h). A group
// of one rank communicates nothing; its collectives copy, and count nothing. The ranks of a group
// connect at its first collective, or at connect(). One thread at a time may use a Comm.
// Collectives start at once, and several may be under way. A work keeps its tensors alive until it
// is waited for; until then their storage must not be freed in place. A Comm must outlive the waits
// for its works. No gradients are recorded, and no tensor's version changes.
//
// The tensors of a group's collectives are all on one type of device, the group's own. Groups of
// one job may differ in it: what the host decides by goes through groups of the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/comm/failure/failure_notice.h"
#include "core/comm/transport/comm_counters.h"
#include "core/comm/transport/reduce_op.h"

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace fsdp2 {

class CollectiveCheck;

// A collective under way. Movable. Waiting twice is allowed. Destroying a work that nobody has
// waited for detaches it: the backend keeps what it needs.
class CommWork {
 public:
  CommWork() = default;

  // For whoever reads the outputs on the host: blocks until they hold their values. Errors:
  // kPeerFailed with the other rank's text, kTimeout, kComm; each names the group and the
  // collective, and is published to all ranks.
  void wait();
  // For whoever only gives the device more work: what the current stream of the group's device is
  // given from here on sees the outputs, and the host goes on. It does not learn how the collective
  // ends, so the next wait() of the same rank tells of a failure. Where the transport is the
  // host's it is wait(), with its errors.
  void wait_on_stream();
  bool pending() const { return static_cast<bool>(finish_); }

 private:
  friend class Comm;
  CommWork(std::function<void()> finish, std::function<void()> order)
      : finish_(std::move(finish)), order_(std::move(order)) {}
  std::function<void()> finish_;
  std::function<void()> order_;  // empty if the host waits
};

// The connection between the ranks of a group: made at first use, then shared by all Comms that use
// it. Its destructor frees whatever still hangs in the group after a failure.
class Channel {
 public:
  // Meets the other ranks of the group; throws Error, and publishes it.
  using Connect = std::function<c10::intrusive_ptr<c10d::Backend>(FailureNotice& failure)>;

  // failure: of ranks among which are all who use the channel.
  // check: compares what its ranks call; null: nobody does.
  Channel(Connect connect, std::shared_ptr<FailureNotice> failure,
          std::shared_ptr<CollectiveCheck> check = nullptr);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Collective over the group the first time.
  c10d::Backend& backend(FailureNotice& failure);
  bool connected() const { return backend_ != nullptr; }
  // Why a collective that a stream was given has failed; null if none has.
  std::exception_ptr stream_error() const;
  CollectiveCheck* check() const { return check_.get(); }

  // A collective has begun, and has ended well.
  void note_start() { ++unfinished_; }
  void note_end() { --unfinished_; }

 private:
  Connect connect_;
  std::shared_ptr<FailureNotice> failure_;
  std::shared_ptr<CollectiveCheck> check_;
  int unfinished_ = 0;
  c10::intrusive_ptr<c10d::Backend> backend_;
};

// How work that is given to a device later comes behind a collective.
enum class CollectiveOrder {
  kOnHost,    // the host waits for the collective
  kOnStream,  // the device's stream does
};

class Comm {
 public:
  struct Identity {
    std::string name;          // for messages: "fsdp/gather"
    int rank = 0;              // within this group
    std::vector<int> members;  // ranks in the world, in group order
    at::Device device;         // this rank's: where the tensors of its collectives are
    CollectiveOrder order = CollectiveOrder::kOnHost;
    bool is_fake = false;  // nothing moves, so tensors without memory will do
  };

  // channel: null for a group of one rank.
  Comm(Identity identity, std::shared_ptr<Channel> channel, std::shared_ptr<FailureNotice> failure,
       std::chrono::milliseconds timeout);
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // The same group over the same connection, with a name and counters of its own. All ranks must
  // call the collectives of both Comms in the same order.
  std::shared_ptr<Comm> share(const std::string& name) const;
  // The same for other ranks' common work, whose failures are `failure`'s.
  std::shared_ptr<Comm> share_with(std::shared_ptr<FailureNotice> failure) const;

  // Collective the first time; later calls do nothing. Without it the first collective connects,
  // and blocks while it does. If ranks may order the first collectives of several groups
  // differently, they must connect before.
  void connect();
  bool connected() const { return channel_ == nullptr || channel_->connected(); }

  int rank() const { return identity_.rank; }
  int size() const { return static_cast<int>(identity_.members.size()); }
  const std::string& name() const { return identity_.name; }
  const std::vector<int>& members() const { return identity_.members; }
  at::Device device() const { return identity_.device; }
  // Whether wait_on_stream() is wait().
  bool waits_on_host() const { return identity_.order == CollectiveOrder::kOnHost; }
  const std::shared_ptr<FailureNotice>& failure() const { return failure_; }
  const CommCounters& counters() const { return counters_; }
  // Silent, its collectives count and do nothing: their outputs are left as they are, and no other
  // rank need call anything. For work whose results nobody reads.
  void set_silent(bool flag) { is_silent_ = flag; }
  void reset_counters() { counters_ = {}; }

  // out: size() * in.numel() elements of in's dtype, rank-major. in may be this rank's part of out.
  [[nodiscard]] CommWork all_gather(at::Tensor out, at::Tensor in);
  // in: size() * out.numel() elements. Low-precision inputs are summed in fp32 and rounded once to
  // out's dtype, which may differ from in's. op: kSum or kAverage.
  [[nodiscard]] CommWork reduce_scatter(at::Tensor out, at::Tensor in, ReduceOp op);
  // In place.
  [[nodiscard]] CommWork all_reduce(at::Tensor tensor, ReduceOp op);
  [[nodiscard]] CommWork broadcast(at::Tensor tensor, int root);
  // in, on the root alone: size() * out.numel() elements of out's dtype, rank-major.
  [[nodiscard]] CommWork scatter(at::Tensor out, at::Tensor in, int root);
  // Both: size() equal parts of the same dtype, of which in's part i goes to rank i and out's part
  // i comes from there. They share no memory.
  [[nodiscard]] CommWork all_to_all(at::Tensor out, at::Tensor in);
  void barrier();

  // Memory that the group's transport gives for its collectives, which then need no copies of their
  // own (NCCL's, registered with the communicator). Whether there is some: local once the group is
  // connected, and the same on all ranks; a group of one rank has none.
  bool has_memory();
  // As the device's allocator: of the current stream. What allocate() gives may outlive the group.
  // Errors: c10::OutOfMemoryError, of this rank alone; kPeerFailed and kComm as a collective's.
  // REQUIRES: has_memory().
  c10::DataPtr allocate(int64_t bytes);
  // What was given and is not in use goes back to the device, for which the host waits.
  void release_memory();
  // For messages: "gloo"; "none" in a group of one rank.
  std::string transport_name();

  // For whoever has read on the host what collectives on streams have given it, and is about to act
  // on it: throws if one of them has failed, and so left anything. No cost to speak of.
  void check_streams() const;

 private:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Post = std::function<WorkPtr(c10d::Backend& backend)>;
  void check_tensor(const char* collective, const char* role, const at::Tensor& tensor) const;
  // For collectives that move values without changing them: both tensors, and that their dtype is
  // one.
  void check_both(const char* collective, const at::Tensor& out, const at::Tensor& in) const;
  // A collective, with what must be the same on all ranks.
  struct Call {
    const char* collective;
    const at::Tensor* tensor = nullptr;
    const char* op = nullptr;
    int root = -1;  // none
  };
  CommWork start(const Call& call, const Post& post);
  CommWork leave_out() const;
  void compare(const Call& call) const;
  static std::string describe(const Call& call);
  std::string waited_for(const std::string& what) const;
  void wait(const char* collective, c10d::Work& work) const;
  void check_healthy(const char* collective) const;
  // waited: what this rank has said that it waits for, where that is more than the collective's
  // name.
  [[noreturn]] void fail_all(const char* collective, Code code, const std::string& reason,
                             const std::string& waited = "") const;
  [[noreturn]] void fail_after_peer(const char* collective) const;

  Identity identity_;
  std::shared_ptr<Channel> channel_;
  std::shared_ptr<FailureNotice> failure_;
  std::chrono::milliseconds timeout_;
  CommCounters counters_;
  bool is_silent_ = false;
};

}  // namespace fsdp2
