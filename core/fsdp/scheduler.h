// The order in which the groups of one tree gather, free and reduce.
//
// Note [One order on every rank]
// The groups of a tree stand in one agreed order, the root's first. A forward that enters at the
// root gathers every group once in that order (parents before children), and the backward that
// starts at the root's output gathers every group once in the order in which backward meets them
// (parents first, siblings in reverse) and reduces every trainable group once in the reverse of the
// forward order, whether this rank uses the group or not. So ranks whose data or routing take
// different paths never wait for each other or mix up parameters. Gathers and reductions run on
// separate groups of ranks (Lane), since their interleaving depends on who uses what. A forward or
// backward that enters below the root gathers and reduces just what it uses, as PyTorch's FSDP2
// does; all ranks must then enter alike.
//
// Note [When a gradient is final]
// The first hook of a backward asks the engine which accumulators will run; a group is complete
// when all of its have. So the root and the first layer reduce as early as all others.
//
// Note [What is in flight]
// Gathers: the group in use and `prefetch` more. Reductions: one; the next waits for it, so at most
// two groups' gradients are alive. Memory use is the same in every step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/fsdp/param_group.h"

namespace fsdp2::fsdp {

enum class EventKind { kAllGather, kUnshard, kReshard, kReduceScatter };

struct Event {
  EventKind kind;
  std::string group;
};

struct Stats {
  int64_t all_gathers = 0;  // of groups, not of transport calls
  int64_t reduce_scatters = 0;
  int64_t all_reduces = 0;  // over replicas
  int64_t unsharded_bytes = 0;
  int64_t peak_unsharded_bytes = 0;
};

class Scheduler {
 public:
  struct Member {
    std::string name;  // of the unit: dotted path from the root, "" for the root
    std::shared_ptr<ParamGroup> group;
  };

  // members: in the agreed order, the root's own group first if it has one.
  Scheduler(std::vector<Member> members, int prefetch);
  // The post-accumulate hooks of the parameters hold a pointer to this.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Forward. begin and end bracket a forward through the root. `index`: of the member.
  void begin_forward();
  void pre_forward(size_t index);
  void post_forward(size_t index);
  void end_forward();

  // Backward: from a hook on an output of the member's module; from_root: of the root module's.
  void pre_backward(size_t index);
  void begin_backward(bool from_root);
  // Inside the engine's backward of this tree: a forward here is a recomputation.
  bool recomputing() const;

  void unshard(size_t index);  // by hand; waits
  void reshard(size_t index);

  // False: this backward's gradients stay unreduced on every rank, to be added to.
  void set_requires_gradient_sync(bool flag) { sync_gradients_ = flag; }

  // Back to the sharded, idle state after an exception. Never throws.
  void reset() noexcept;

  const Stats& stats() const { return stats_; }
  void reset_stats();
  const std::vector<Member>& members() const { return members_; }
  // The last kMaxEvents events, oldest first.
  std::vector<Event> events() const;
  void clear_events();

 private:
  static constexpr size_t kMaxEvents = 1 << 14;
  static constexpr int64_t kNoTask = -1;

  struct LoggedEvent {
    EventKind kind;
    size_t index;
  };
  // When a member's forwards ran since the last backward, in calls of any member.
  struct ForwardSpan {
    int64_t first_begin = 0;  // 0: not at all
    int64_t last_end = 0;
  };
  // What one backward knows of a member.
  struct BackwardState {
    size_t pending = 0;         // gradients still to come
    bool all_expected = false;  // every parameter was to get one
    bool started = false;       // its pre_backward has fired
    bool complete = false;      // pending has come down to 0, or the backward has ended
  };

  bool keeps_after_forward(size_t index) const;
  void issue_unshard(size_t index);
  void advance_forward(size_t until);   // issues members [cursor_, until)
  void advance_backward(size_t until);  // the same by positions in backward_order_
  void free_members_after(size_t index);
  void find_expected_gradients();
  void on_gradient(size_t index);
  void complete(size_t index);
  void drain_reductions();
  void issue_reduction(size_t index);
  void finish_reduction();
  void end_backward();
  void record(EventKind kind, size_t index);

  std::vector<Member> members_;
  std::vector<size_t> backward_order_;     // member by position
  std::vector<size_t> backward_position_;  // position by member
  size_t prefetch_;
  bool sync_gradients_ = true;

  bool forward_from_root_ = false;
  bool backward_from_root_ = false;
  size_t cursor_ = 0;         // first member (forward) or position (backward) not issued
  size_t reduce_cursor_ = 0;  // members at and above it have been reduced
  int64_t clock_ = 0;         // ticks at the begin and end of each member's forward
  std::vector<ForwardSpan> forward_;
  int64_t task_ = kNoTask;  // the engine's id of the running backward
  std::vector<BackwardState> backward_;
  ParamGroup* reducing_ = nullptr;  // whose reduction is under way

  Stats stats_;
  std::vector<LoggedEvent> events_;  // a ring once it is full
  size_t events_begin_ = 0;
};

}  // namespace fsdp2::fsdp
