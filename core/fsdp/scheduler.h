// Carries a tree's steps out: tells StepOrder what happens in forward and in autograd's backward,
// does what it says with the groups, and counts and logs it. step_order.h has the order itself.
//
// Note [When a gradient is final]
// The first hook of a backward asks the engine which accumulators will run; a group is complete
// when all of its have. So the root and the first layer reduce as early as all others.
//
// Note [Where a backward starts]
// It starts at the root if its graph has an output of the root's module, whichever hook comes
// first: where the root passes on what a unit returns, the unit's hook does, and gradients of
// values that the root's module returns beside its output may come before that of any output.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/fsdp/event_log.h"
#include "core/fsdp/group/param_group.h"
#include "core/fsdp/step_order.h"

namespace torch::autograd {
struct Node;
}

namespace fsdp2::fsdp {

struct Stats {
  int64_t all_gathers = 0;  // of groups, not of transport calls
  int64_t reduce_scatters = 0;
  int64_t all_reduces = 0;  // over replicas
  int64_t unsharded_bytes = 0;
  int64_t peak_unsharded_bytes = 0;
};

// What a part of a step counts.
struct Counted {
  Stats stats;  // of bytes the peak alone, above what was there when it began
  CommCounters calls;
  std::vector<EventLog::Entry> events;
};

// What it means for a group that so many of its parameters are to get a gradient.
ExpectedGradients expected_gradients(const ParamGroup& group, size_t n_expected);

class Scheduler {
 public:
  struct Member {
    std::string name;  // of the unit: dotted path from the root, "" for the root
    std::shared_ptr<ParamGroup> group;
    bool has_untracked_reads = false;  // of a module in it: nn::UntrackedReads
  };

  // members: in the agreed order, the root's own group first if it has one. policy: the root's.
  Scheduler(std::vector<Member> members, const Policy& policy);
  // The post-accumulate hooks of the parameters hold a pointer to this. Its end may come while the
  // device still computes.
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
  bool inside_root_forward() const { return order_.inside_root_forward(); }
  int64_t root_forwards() const { return root_forwards_; }  // so far

  // The node of an output of the last forward of the root, which has a hook.
  void add_root_output(const std::shared_ptr<torch::autograd::Node>& node);

  // Backward: from a hook on an output of the member's module, whose node may be null if it is not
  // known. inside_root: of a forward inside one of the root, or of the root. place: what
  // post_forward returned for the forward that made the output.
  void begin_backward(bool inside_root, const torch::autograd::Node* node);
  // From a hook on an output of the root's module; root_forward: root_forwards() in the forward.
  void enter_root_backward(int64_t root_forward);
  void pre_backward(size_t index, size_t place);
  // In a checkpointed segment that runs again, or inside the engine's backward of this tree: a
  // forward here is a recomputation, which only needs the parameters.
  bool recomputing() const;
  // Unless nothing is left that reads the member's parameters.
  void need_in_backward(size_t index);
  // For a forward that runs again. Error: kWrongState if the unit has been updated
  // (set_on_reduced).
  void need_again(size_t index);

  // By hand.
  void start_unshard(size_t index);
  void unshard(size_t index);
  void reshard(size_t index);

  // False: the end of a backward neither waits for the last reduction nor forgets the order of
  // forwards, since more backwards follow (micro batches of a pipeline).
  void set_is_last_backward(bool flag) { is_last_backward_ = flag; }
  bool is_last_backward() const { return is_last_backward_; }
  // After the backwards of a step: reduces what they have put off (StepOrder::finalize_backward),
  // waits for all reductions and forgets the order of forwards. Error: kWrongState inside of a
  // forward or backward.
  void finalize_backward();
  // The shards have new values: frees all that is gathered, by a forward, a backward or by hand.
  // Begins no collective; all ranks call it alike.
  void shards_changed();
  // From now on the caller holds the shards and may write to them at any time, so no forward uses
  // what was gathered before it. All ranks call it alike.
  void lend_shards() { shards_are_lent_ = true; }
  // Called once a unit's reduced gradients are on its shards, on the thread and the current stream
  // of the backward, whose rest may be under way: it may write to those shards and take their
  // gradients away. What of the unit is read after that in this backward is an error.
  // Empty: nobody.
  void set_on_reduced(std::function<void(const ParamGroup& group)> callback);
  // Waits for the reduction under way, if there is one, and adds it to the sharded gradients.
  void finish_reduction();
  // For whoever has read on the host what a step has computed, and is about to act on it: throws if
  // a collective of it has failed on a stream.
  void check_streams() const;
  // Where the step is, or was when an exception ended it, for messages: "the backward of layers.3",
  // "FSDP::all_gather of layers.3"; "the step" before its first unit. It lasts until the next
  // forward of the root.
  std::string place() const;
  // Drops gradients that have not come to the shards, wherever they are. Begins no collective.
  void forget_unreduced();
  // What keep_buffers has kept and no unit uses now goes back to the allocator, and so does what
  // groups have given (Comm::release_memory).
  void release_buffers();
  const TreeBuffers& buffers() const { return *buffers_; }

  // Calls `work` with all streams of the tree behind the current one, and then lets that come
  // behind them: so they are part of what a device records of it (core/device/device_graphs.h).
  void in_recording(const std::function<void()>& work);
  // The same, without the collectives (Comm::set_silent): whatever else of it cannot be recorded,
  // a rank learns without another one that waits for it.
  void in_rehearsal(const std::function<void()>& work);
  // Whether every unit is sharded and no gradient is on its way, as when a step begins.
  bool is_at_rest() const;
  // What `work` would count. It counts nothing, nor what it has done before it throws, as what is
  // recorded does not run.
  Counted counted_apart(const std::function<void()>& work);
  // What was recorded has run.
  void count(const Counted& work);
  // By how much the units' calls differ from what their groups have counted.
  const CommCounters& calls_apart() const { return calls_apart_; }

  // Back to the sharded, idle state after an exception. Never throws.
  void reset() noexcept;

  const StepOrder::Options& options() const { return order_.options(); }
  const std::vector<Member>& members() const { return members_; }
  // The indices of the units that the member's prefetch list names. Error: kInvalidArgument if one
  // is not in this tree.
  std::vector<size_t> forward_prefetch(size_t index) const;
  std::vector<size_t> backward_prefetch(size_t index) const;
  // The order of a step of these members that begins with everything sharded. The tree outlives it.
  StepOrder fresh_order() const;

  const Stats& stats() const { return stats_; }
  void reset_stats();
  std::vector<Event> events() const;
  const EventLog& event_log() const { return log_; }
  void clear_events() { log_.clear(); }

 private:
  static constexpr int64_t kNoTask = -1;

  ParamGroup& group(size_t index) const { return *members_[index].group; }
  std::vector<size_t> indices_of(const std::vector<std::weak_ptr<ParamGroup>>& groups) const;
  // What is gathered from here on sees what has been written to the shards.
  void see_shards();
  void carry_out(const StepOrder::Actions& actions);
  void carry_out(const Action& action);
  void start_gather(size_t index);
  void start_reduce(size_t index);
  void finish_reduce(size_t index);
  void hand_out_gradients(size_t index);
  void receive_gradients();
  void track_bytes(int64_t change);
  void now_doing(const char* what, size_t index) {
    doing_ = what;
    doing_at_ = index;
  }

  bool reaches_root_output(const torch::autograd::Node* node) const;
  std::vector<ExpectedGradients> find_expected_gradients();
  void on_gradient(size_t index);
  void end_backward();

  std::vector<Member> members_;
  std::unordered_map<const ParamGroup*, size_t> index_of_;
  StepOrder order_;
  std::shared_ptr<SideStreams> streams_;  // which the groups share, as the buffers
  std::shared_ptr<TreeBuffers> buffers_;
  bool is_last_backward_ = true;
  // What place() says: of which member, unless there is no text yet.
  const char* doing_ = nullptr;
  size_t doing_at_ = 0;
  int64_t root_forwards_ = 0;
  bool shards_are_lent_ = false;
  std::vector<std::weak_ptr<torch::autograd::Node>> root_outputs_;  // of graphs that still exist

  int64_t task_ = kNoTask;       // the engine's id of the running backward
  std::vector<size_t> pending_;  // by member: gradients still to come in it
  // By member: its shards may have been written to in backward, and not been seen since.
  std::vector<bool> written_;
  std::function<void(const ParamGroup& group)> on_reduced_;
  std::vector<bool> handed_out_;  // by member: to on_reduced_, in the running backward

  Stats stats_;
  CommCounters calls_apart_;
  EventLog log_;
};

}  // namespace fsdp2::fsdp
