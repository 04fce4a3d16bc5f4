// The order in which the units of one tree gather, free and reduce: what is to be done at each
// event of a step. It knows names, settings and what has happened so far, but no tensors, no
// communication and no autograd. The scheduler carries the actions out, and a plan counts them.
//
//   StepOrder order(units, {Schedule::kAgreed, /*prefetch=*/1});
//   order.begin_forward();
//   order.enter_forward(0, /*also_gather=*/{});  // gather 0, wait for 0, gather 1
//
// What an event returns counts as done: carry it out in full before the next event, or say by
// `correct` which states the units are left in.
//
// Note [One order on every rank]
// The units of a tree stand in one agreed order, the root's first. A forward that enters at the
// root gathers every unit once in that order (parents before children), and the backward that
// starts at the root's output gathers every unit once in the order in which backward meets them
// (parents first, siblings in reverse) and reduces every trainable unit once in the reverse of the
// forward order, whether this rank uses the unit or not. So ranks whose data or routing take
// different paths never wait for each other or mix up parameters. Gathers and reductions run on
// separate groups of ranks (Lane), since their interleaving depends on who uses what; and a rank
// that does not use every unit issues all gathers before it waits for a reduction, which others
// may be able to join only after those. Explicit prefetch lists only say how far ahead of use to
// gather then; the order stays. What this does not cover, and ends at the time-out: a rank that
// uses a unit twice in a forward where others do not, or all units in an order of its own, or one
// that uses no unit in a forward, of several before a backward, or returns nothing there that needs
// a gradient.
//
// Note [One communicator]
// With one communicator for both, a gather and a reduction must not change places from rank to
// rank. So each reduction of the agreed backward has its place among the gathers: behind those that
// are issued when a rank that uses all units enters the one to be reduced, and before the next. A
// rank that does not use it moves the gathers before it forward, or the reduction before the next
// gather; nothing is gathered further ahead than that. A backward that meets units in another
// order, or comes back to one, is an error (kWrongState).
//
// Under Schedule::kOnUse, and in a forward or backward that enters below the root, a rank gathers
// and reduces just what it uses when it uses it, and backward gathers ahead the unit whose forward
// ran before, as PyTorch's FSDP2 does; all ranks must then enter alike.
//
// Note [Several forwards before a backward]
// The engine runs what was recorded last first, so a backward goes through the root's forwards from
// the last one to the first, and whether it has come to an earlier one the place of each forward
// tells. Each forward's units are gathered and freed anew, so that memory is that of one forward;
// only the root's own unit stays. Gradients add up in the engine and come with the first forward,
// and so do reductions. Under the agreed schedule all ranks must go through the same forwards.
//
// Note [What a forward keeps]
// Parameters that a forward has kept gathered serve the next ones, with gradients or without, until
// a backward frees them. Nothing stays gathered when the shards change (shards_changed): PyTorch's
// FSDP2 goes on to compute with what it keeps after a backward, which is then out of date.
//
// Note [What is in flight]
// Gathers: the unit in use and those prefetched. Reductions: one; the next waits for it, so at
// most two units' gradients are alive. Memory use is the same in every step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/fsdp/group/group_settings.h"
#include "core/fsdp/group/group_state.h"
#include "core/fsdp/group/policy.h"

namespace fsdp2::fsdp {

enum class ActionKind {
  kGather,        // begin to gather its parameters
  kWait,          // until they are there
  kFree,          // its gathered parameters or slices
  kSlice,         // cut its gathered parameters to slices
  kReduce,        // begin to reduce its gradients
  kFinishReduce,  // wait for that, and put the result on the shards
  kAccumulate,    // keep its gradients for a later reduction
  kLeave,         // nothing: its turn in one of several forwards has ended
};

struct Action {
  ActionKind kind;
  size_t unit;
};

inline bool operator==(const Action& a, const Action& b) {
  return a.kind == b.kind && a.unit == b.unit;
}

// How many of a unit's parameters, frozen ones included, get a gradient in a backward.
enum class ExpectedGradients { kNone, kSome, kAll };

class StepOrder {
 public:
  struct Unit {
    std::string name;       // dotted path from the root, "" for the root
    bool trainable = true;  // whether any of its parameters is
    ReshardAfterForward reshard_after_forward = ReshardAfterForward::kAuto;
    const GroupSettings* settings = nullptr;  // outlives this; read anew at each event
    GroupState state = GroupState::kSharded;  // to begin with
    bool has_replicas = false;                // whose gradients an all-reduce brings together
    bool has_untracked_reads = false;         // of a module in it: nn::UntrackedReads
  };
  struct Options {
    Schedule schedule = Schedule::kAgreed;
    int prefetch = 1;
    bool one_communicator = false;
  };
  using Actions = std::vector<Action>;

  // units: in the agreed order, the root first if it has parameters of its own.
  StepOrder(std::vector<Unit> units, const Options& options);

  // Forward. begin and end bracket a forward through the root.
  void begin_forward();
  // also_gather: the units that an explicit prefetch list names.
  Actions enter_forward(size_t unit, const std::vector<size_t>& also_gather);
  // more_to_come: other modules of the unit have yet to run in this forward, which keeps it.
  // for_backward: a backward may follow.
  Actions leave_forward(size_t unit, bool more_to_come, bool for_backward);
  // The place of the forward left last among all since the last backward, for enter_backward.
  size_t last_place() const { return state_.first_place + state_.past_forwards.size() - 1; }
  Actions end_forward();
  // A backward may go through the root's last forward, whether or not that has used a unit.
  void expect_root_backward();
  bool inside_root_forward() const { return state_.root_forward.under_way; }

  // Backward. from_root: it starts at the root's output. expected: of each unit.
  void begin_backward(bool from_root, const std::vector<ExpectedGradients>& expected);
  // The gradient of an output of the root has come; root_forward: the number of the forward that
  // made it, counted from 1.
  Actions enter_root_backward(int64_t root_forward);
  // The gradient of an output of the unit has come; place: of the forward that made the output.
  // Error: see Note [One communicator]; so for need_in_backward.
  Actions enter_backward(size_t unit, size_t place, const std::vector<size_t>& also_gather);
  // Backward needs the unit's parameters, whatever its settings say: a forward runs again, or ran
  // while the settings were others.
  Actions need_in_backward(size_t unit);
  // Whether no node is left that reads a parameter of the unit. The gradient of an output that none
  // of them has made may still come.
  bool is_read_out(size_t unit) const { return state_.backward.units[unit].read_out; }
  // The last of the gradients that were expected of the unit has come.
  Actions gradients_final(size_t unit);
  // has_gradients: whether a unit holds gradients, of this backward or an earlier one, that have
  // not been reduced. last: finish_step is to follow.
  Actions end_backward(const std::vector<bool>& has_gradients, bool last);
  // No other backward of the forwards so far will follow.
  Actions finish_step();
  // The same, after what backwards have put off for want of gradient sync or all-reduce has been
  // reduced, of the units whose settings now allow it.
  Actions finalize_backward();

  // The shards have new values: what is gathered, by a forward, a backward or by hand, is freed.
  Actions shards_changed();

  // By hand.
  Actions start_unshard(size_t unit);
  Actions unshard(size_t unit);
  Actions reshard(size_t unit);
  Actions finish_reduction();
  // The reduction under way and those put off have been dropped.
  void forget_reductions();

  // After actions that were not carried out in full.
  void correct(size_t unit, GroupState state) { state_.groups[unit] = state; }
  // Back to everything sharded and idle.
  void reset();

  const Options& options() const { return options_; }
  // The units in the order in which backward meets them.
  const std::vector<size_t>& backward_order() const { return backward_order_; }

 private:
  static constexpr size_t kMaxPastForwards = 1 << 16;

  // When a unit ran within one forward of the root, in calls of any unit.
  struct ForwardSpan {
    int64_t first_begin = 0;  // 0: not at all
    int64_t last_end = 0;
    bool for_backward = false;
  };
  // By the root's forward: the number of the one that is, or was, the last. What runs between two
  // of them counts with the first. The last span is that of the root's module, which may be in no
  // unit here.
  using Spans = std::map<int64_t, std::vector<ForwardSpan>>;
  struct PastForward {
    size_t unit;
    int64_t root_forward;
    bool prefetched = false;  // the forward before it has been gathered ahead
  };
  struct RootForward {
    int64_t number = 0;
    bool under_way = false;
    size_t cursor = 0;  // first unit not gathered
  };
  // What one backward knows of a unit.
  struct BackwardUnit {
    bool all_expected = false;  // every parameter was to get a gradient
    bool started = false;       // the gradient of an output has come, in the present root forward
    bool complete = false;      // all expected gradients have come, or the backward has ended
    bool read_out = false;      // no node is left that reads its parameters
    bool reduced = false;       // its reduction has been issued or put off
    bool left = false;          // its turn in a later root forward has ended
    bool ahead = false;         // then gathered again, for a forward before this backward's
  };
  struct Backward {
    explicit Backward(size_t n_units) : reduce_cursor(n_units), units(n_units) {}

    bool under_way = false;
    bool from_root = false;
    bool uses_all = true;                 // every trainable unit gets gradients
    std::optional<int64_t> root_forward;  // which one it goes through now
    size_t cursor = 0;                    // first position in backward_order_ not gathered
    size_t reduce_cursor;                 // units at and above it have been reduced
    std::vector<BackwardUnit> units;
  };
  // What is still to be done for gradients of backwards that have ended.
  enum class PutOff { kNothing, kAllReduce, kReduction };
  // All that changes from event to event.
  struct State {
    explicit State(size_t n_units)
        : groups(n_units), kept_by_forward(n_units), put_off(n_units), backward(n_units) {}

    std::vector<GroupState> groups;
    std::vector<bool> kept_by_forward;
    std::optional<size_t> reducing;  // whose reduction is under way
    std::vector<PutOff> put_off;
    RootForward root_forward;
    int64_t clock = 0;                       // ticks at the begin and end of each unit's forward
    Spans spans;                             // of root forwards that a backward may follow
    std::vector<PastForward> past_forwards;  // with gradients, since the last backward
    size_t first_place = 0;                  // of past_forwards; earlier places are forgotten
    int64_t forgotten_root_forwards = 0;     // the number of the last one
    Backward backward;                       // the last one
  };
  enum class AfterForward { kFree, kKeep, kSlice };

  const GroupSettings& settings(size_t unit) const { return *units_[unit].settings; }
  bool agreed() const { return options_.schedule == Schedule::kAgreed; }
  bool agreed_forward() const { return agreed() && state_.root_forward.under_way; }
  bool agreed_backward() const { return agreed() && state_.backward.from_root; }

  // These add to next_, which each event hands out by take().
  Actions take();
  void gather(size_t unit);
  void wait(size_t unit);
  void gather_and_wait(size_t unit);
  void free(size_t unit);
  void slice(size_t unit);

  void advance_forward(size_t until);  // gathers units [cursor, until)
  void prefetch_forward(size_t unit, const std::vector<size_t>& also_gather);
  AfterForward after_forward(size_t unit) const;
  void settle_after_forward(size_t unit);
  std::vector<ForwardSpan>& last_spans();
  ForwardSpan& span_of(size_t unit) { return last_spans()[unit]; }
  void forget_forwards();
  void forget_spans_without_backward();

  void advance_backward(size_t until);  // by positions in backward_order_, as far as it may
  void reach_in_backward(size_t unit);
  bool reduction_comes_first() const;  // before the next gather
  bool may_reduce_next() const;
  void reduce_next();
  void gather_for_backward(size_t unit);
  void gather_ahead(size_t unit);
  void prefetch_backward(size_t unit, size_t place, const std::vector<size_t>& also_gather);
  void free_in_backward(size_t unit);
  void leave_backward(size_t unit);
  void free_units_after(size_t unit);
  // The place's entry; null if it has been forgotten.
  PastForward* find_forward(size_t unit, size_t place);
  void enter_root_forward(int64_t number);
  void leave_root_forward();
  bool runs_before(int64_t root_forward, size_t unit) const;
  bool may_be_reduced(size_t unit) const;
  bool is_due(size_t unit) const;
  void drain_reductions();
  void reduce(size_t unit);
  void finish_reduction_under_way();

  std::vector<Unit> units_;
  Options options_;
  std::vector<size_t> backward_order_;     // unit by position
  std::vector<size_t> backward_position_;  // position by unit
  // By unit: how many gathers of a backward come before its reduction, with one communicator.
  std::vector<size_t> gathers_before_reduction_;
  State state_;
  Actions next_;
};

}  // namespace fsdp2::fsdp
