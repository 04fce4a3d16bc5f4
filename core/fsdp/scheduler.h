// The order in which the groups of one tree gather, free and reduce.
//
// Note [One order on every rank]
// The groups of a tree stand in one agreed order, the root's first. A forward that enters at the
// root gathers every group once in that order (parents before children), and the backward that
// starts at the root's output gathers every group once in the order in which backward meets them
// (parents first, siblings in reverse) and reduces every trainable group once in the reverse of the
// forward order, whether this rank uses the group or not. So ranks whose data or routing take
// different paths never wait for each other or mix up parameters. Gathers and reductions run on
// separate groups of ranks (Lane), since their interleaving depends on who uses what; and a rank
// that does not use every member issues all gathers before it waits for a reduction, which others
// may be able to join only after those. Explicit prefetch lists only say how far ahead of use to
// gather then; the order stays. What this does not cover, and ends at the time-out: a rank that
// uses a member twice in a forward where others do not, or all members in an order of its own.
//
// Under Schedule::kOnUse, and in a forward or backward that enters below the root, a rank gathers
// and reduces just what it uses when it uses it, and backward gathers ahead the group whose forward
// ran before, as PyTorch's FSDP2 does; all ranks must then enter alike.
//
// Note [When a gradient is final]
// The first hook of a backward asks the engine which accumulators will run; a group is complete
// when all of its have. So the root and the first layer reduce as early as all others.
//
// Note [What is in flight]
// Gathers: the group in use and those prefetched. Reductions: one; the next waits for it, so at
// most two groups' gradients are alive. Memory use is the same in every step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/fsdp/event_log.h"
#include "core/fsdp/group/param_group.h"

namespace fsdp2::fsdp {

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
  struct Options {
    Schedule schedule = Schedule::kAgreed;
    int prefetch = 1;
  };

  // members: in the agreed order, the root's own group first if it has one.
  Scheduler(std::vector<Member> members, const Options& options);
  // The post-accumulate hooks of the parameters hold a pointer to this.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Forward. begin and end bracket a forward through the root. `index`: of the member.
  void begin_forward();
  void pre_forward(size_t index);
  // more_to_come: other modules of the unit have yet to run in this forward, which keeps it.
  // Returns the forward's place among all since the last backward, for pre_backward.
  size_t post_forward(size_t index, bool more_to_come);
  void end_forward();
  bool inside_root_forward() const { return forward_from_root_; }
  int64_t root_forwards() const { return root_forwards_; }  // so far

  // Backward: from a hook on an output of the member's module; from_root: of the root module's.
  // place: what post_forward returned for the forward that made the output.
  void begin_backward(bool from_root);
  void pre_backward(size_t index, size_t place);
  // In a checkpointed segment that runs again, or inside the engine's backward of this tree: a
  // forward here is a recomputation, which only needs the parameters.
  bool recomputing() const;
  void recompute(size_t index);

  // By hand.
  void start_unshard(size_t index);
  void unshard(size_t index);
  void reshard(size_t index);

  // False: the end of a backward neither waits for the last reduction nor forgets the order of
  // forwards, since more backwards follow (micro batches of a pipeline).
  void set_is_last_backward(bool flag) { is_last_backward_ = flag; }
  // Waits for the reduction under way, if there is one, and adds it to the sharded gradients.
  void finish_reduction();
  // Drops gradients that have not come to the shards, wherever they are. Begins no collective.
  void forget_unreduced();

  // Back to the sharded, idle state after an exception. Never throws.
  void reset() noexcept;

  const Options& options() const { return options_; }
  const Stats& stats() const { return stats_; }
  void reset_stats();
  const std::vector<Member>& members() const { return members_; }
  std::vector<Event> events() const;
  const EventLog& event_log() const { return log_; }
  void clear_events() { log_.clear(); }

 private:
  static constexpr int64_t kNoTask = -1;
  static constexpr size_t kMaxPastForwards = 1 << 16;

  // When a member's forwards ran since the last backward, in calls of any member.
  struct ForwardSpan {
    int64_t first_begin = 0;  // 0: not at all
    int64_t last_end = 0;
  };
  struct PastForward {
    size_t index;
    bool prefetched = false;  // the forward before it has been gathered ahead
  };
  // What one backward knows of a member.
  struct BackwardState {
    size_t pending = 0;         // gradients still to come
    bool all_expected = false;  // every parameter was to get one
    bool started = false;       // its pre_backward has fired
    bool complete = false;      // pending has come down to 0, or the backward has ended
    bool reduced = false;       // its reduction has been issued or put off
  };
  enum class AfterForward { kFree, kKeep, kSlices };

  ParamGroup& group(size_t index) const { return *members_[index].group; }
  bool agreed() const { return options_.schedule == Schedule::kAgreed; }
  bool agreed_forward() const { return agreed() && forward_from_root_; }
  bool agreed_backward() const { return agreed() && backward_from_root_; }
  std::vector<size_t> indices_of(const std::vector<std::weak_ptr<ParamGroup>>& groups) const;
  void track_bytes(int64_t change);

  AfterForward after_forward(size_t index) const;
  void leave_forward(size_t index);
  void prefetch_forward(size_t index);
  void advance_forward(size_t until);  // issues members [cursor_, until)

  void issue_for_backward(size_t index);
  void prefetch_backward(size_t index, size_t place);
  void advance_backward(size_t until);  // by positions in backward_order_
  void free_in_backward(size_t index);
  void free_members_after(size_t index);
  void find_expected_gradients();
  void on_gradient(size_t index);
  void complete(size_t index);
  void drain_reductions();
  void reduce(size_t index);
  void issue_reduction(size_t index);
  void end_backward();

  std::vector<Member> members_;
  std::unordered_map<const ParamGroup*, size_t> index_of_;
  std::vector<size_t> backward_order_;     // member by position
  std::vector<size_t> backward_position_;  // position by member
  Options options_;
  bool is_last_backward_ = true;

  bool forward_from_root_ = false;
  bool backward_from_root_ = false;
  int64_t root_forwards_ = 0;
  size_t cursor_ = 0;         // first member (forward) or position (backward) not issued
  size_t reduce_cursor_ = 0;  // members at and above it have been reduced
  int64_t clock_ = 0;         // ticks at the begin and end of each member's forward
  std::vector<ForwardSpan> forward_;
  std::vector<bool> kept_by_forward_;
  std::vector<PastForward> past_forwards_;  // with gradients, since the last backward
  int64_t task_ = kNoTask;                  // the engine's id of the running backward
  bool uses_all_ = true;                    // every trainable member gets gradients in it
  std::vector<BackwardState> backward_;
  ParamGroup* reducing_ = nullptr;  // whose reduction is under way

  Stats stats_;
  EventLog log_;
};

}  // namespace fsdp2::fsdp
