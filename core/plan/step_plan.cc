#include "core/plan/step_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/fsdp/group/param_group.h"
#include "core/fsdp/scheduler.h"
#include "core/fsdp/tree.h"
#include "core/nn/sequence_peers.h"
#include "core/plan/sequence_plan.h"

namespace fsdp2::plan {

namespace {

using fsdp::ActionKind;
using fsdp::ParamGroup;

const fsdp::GroupSettings& settings_of(const fsdp::Scheduler::Member& member) {
  return std::as_const(*member.group).settings();
}

// A plan knows what the agreed schedule does, and what shards themselves weigh.
void check_can_be_planned(const fsdp::Unit& root,
                          const std::vector<fsdp::Scheduler::Member>& members) {
  FSDP2_CHECK(root.policy().schedule == fsdp::Schedule::kAgreed, Code::kUnsupported,
              "plan: expected the agreed schedule, found the one on use, whose steps depend on "
              "what each rank uses");
  for (const fsdp::Scheduler::Member& member : members) {
    FSDP2_CHECK(settings_of(member).all_gather_extension == nullptr, Code::kUnsupported,
                "plan: unit '{}': expected shards that travel as they are, found an all-gather "
                "extension, whose pieces only it knows",
                member.name);
  }
}

// Buffers of one stream: of each size as many as are in use at once.
class BufferCount {
 public:
  void take(const KeptSizes::Sizes& sizes) {
    for (const int64_t size : sizes) {
      Number& number = numbers_[size];
      number.most = std::max(number.most, ++number.in_use);
    }
  }
  void give(const KeptSizes::Sizes& sizes) {
    for (const int64_t size : sizes) {
      --numbers_[size].in_use;
    }
  }
  int64_t bytes() const {
    int64_t bytes = 0;
    for (const auto& [size, number] : numbers_) {
      bytes += size * number.most;
    }
    return bytes;
  }

 private:
  struct Number {
    int64_t in_use = 0;
    int64_t most = 0;
  };
  std::map<int64_t, Number> numbers_;  // by size
};

// Takes the order through the step of a model that uses its units in their order, and counts.
class StepCount {
 public:
  StepCount(const fsdp::Scheduler& scheduler, StepPlan& plan)
      : scheduler_(scheduler),
        plan_(plan),
        order_(scheduler.fresh_order()),
        places_(plan.units.size()),
        held_(plan.units.size()) {}

  void forward() {
    order_.begin_forward();
    std::vector<size_t> open;
    for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
      for (const size_t left : take_left(open, unit)) {
        leave_forward(left);
      }
      plan_.forward.push_back({unit, {}});
      record(order_.enter_forward(unit, scheduler_.forward_prefetch(unit)), plan_.forward.back());
      open.push_back(unit);
    }
    for (const size_t left : take_left(open, std::nullopt)) {
      leave_forward(left);
    }
    record(order_.end_forward(), plan_.forward.back());
  }

  void backward() {
    order_.begin_backward(/*from_root=*/true, expected_gradients());
    std::vector<size_t> open;
    for (const size_t unit : order_.backward_order()) {
      plan_.backward.push_back({unit, {}});
      for (const size_t left : take_left(open, unit)) {
        leave_backward(left);
      }
      record(order_.enter_backward(unit, places_[unit], scheduler_.backward_prefetch(unit)),
             plan_.backward.back());
      open.push_back(unit);
    }
    for (const size_t left : take_left(open, std::nullopt)) {
      leave_backward(left);
    }
    const std::vector<bool> no_gradients_left(plan_.units.size());
    record(order_.end_backward(no_gradients_left, /*last=*/true), plan_.backward.back());
    record(order_.finish_step(), plan_.backward.back());
    plan_.kept = gather_memory_.bytes() + compute_memory_.bytes() + reduce_memory_.bytes();
  }

 private:
  enum class Gathering { kNot, kShards, kSlices };
  // What is alive of a unit's gathered parameters, and of the buffers of its collectives.
  struct Held {
    int64_t bytes = 0;
    bool slices = false;
    Gathering gathering = Gathering::kNot;
    int64_t gather_buffers = 0;
    int64_t reduce_buffers = 0;
  };

  // Takes off `open` the units that the next one is not inside (all if there is none), innermost
  // first.
  std::vector<size_t> take_left(std::vector<size_t>& open, std::optional<size_t> next) const {
    const auto is_open = [&](size_t unit) {
      return next && is_inside(plan_.units[*next].name, plan_.units[unit].name);
    };
    std::vector<size_t> left;
    for (; !open.empty() && !is_open(open.back()); open.pop_back()) {
      left.push_back(open.back());
    }
    return left;
  }

  void leave_forward(size_t unit) {
    record(order_.leave_forward(unit, /*more_to_come=*/false, /*for_backward=*/true),
           plan_.forward.back());
    places_[unit] = order_.last_place();
  }

  void leave_backward(size_t unit) {
    if (!group(unit).trainable().empty()) {
      record(order_.gradients_final(unit), plan_.backward.back());
    }
  }

  std::vector<fsdp::ExpectedGradients> expected_gradients() const {
    std::vector<fsdp::ExpectedGradients> expected;
    for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
      expected.push_back(fsdp::expected_gradients(group(unit), group(unit).trainable().size()));
    }
    return expected;
  }

  void record(const fsdp::StepOrder::Actions& actions, Turn& turn) {
    for (const fsdp::Action& action : actions) {
      if (action.kind != ActionKind::kReduce || count_reduction(action.unit)) {
        turn.actions.push_back(action);
      }
      count_kept(action);
      count_bytes(action);
    }
  }

  // As ParamGroup takes and gives them, before count_bytes notes what has become of the unit.
  void count_kept(const fsdp::Action& action) {
    const KeptSizes& kept = plan_.units[action.unit].kept;
    const Held& held = held_[action.unit];
    switch (action.kind) {
      case ActionKind::kGather:
        gather_memory_.take(kept.parameters);
        gather_memory_.take(held.slices ? kept.gather_slices : kept.gather);
        break;
      case ActionKind::kWait:
        give_after_gather(kept, held);
        break;
      case ActionKind::kFree:
        if (held.slices) {
          compute_memory_.give(kept.slices);
        } else {
          give_after_gather(kept, held);
          gather_memory_.give(kept.parameters);
        }
        break;
      case ActionKind::kSlice:
        compute_memory_.take(kept.slices);
        gather_memory_.give(kept.parameters);
        break;
      case ActionKind::kReduce:
        compute_memory_.take(kept.reduce);
        reduce_memory_.take(kept.reduced);
        break;
      case ActionKind::kFinishReduce:
        compute_memory_.give(kept.reduce);
        reduce_memory_.give(kept.reduced);
        break;
      case ActionKind::kAccumulate:
      case ActionKind::kLeave:
        break;
    }
  }

  void give_after_gather(const KeptSizes& kept, const Held& held) {
    switch (held.gathering) {
      case Gathering::kNot:
        break;
      case Gathering::kShards:
        gather_memory_.give(kept.gather);
        break;
      case Gathering::kSlices:
        gather_memory_.give(kept.gather_slices);
        compute_memory_.give(kept.slices);
        break;
    }
  }

  void count_bytes(const fsdp::Action& action) {
    const UnitPlan& unit = plan_.units[action.unit];
    const int64_t slice_bytes =
        unit.gathered_bytes / std::max(group(action.unit).policy().reshard_world, 1);
    Held held = held_[action.unit];
    switch (action.kind) {
      case ActionKind::kGather:
        plan_.all_gather += held.slices ? unit.gather_slices : unit.gather;
        held.bytes += unit.gathered_bytes;
        held.gathering = held.slices ? Gathering::kSlices : Gathering::kShards;
        held.slices = false;
        held.gather_buffers = unit.gather_buffers;
        break;
      case ActionKind::kWait:
        held.bytes = unit.gathered_bytes;
        held.gathering = Gathering::kNot;
        held.gather_buffers = 0;
        break;
      case ActionKind::kFree:
        held.bytes = 0;
        held.slices = false;
        held.gathering = Gathering::kNot;
        break;
      case ActionKind::kSlice:
        held.bytes = slice_bytes;
        held.slices = true;
        break;
      case ActionKind::kReduce:
        held.reduce_buffers = unit.reduce_buffers;
        break;
      case ActionKind::kFinishReduce:
        held.reduce_buffers = 0;
        break;
      case ActionKind::kAccumulate:
      case ActionKind::kLeave:
        break;
    }
    hold(action.unit, held);
  }

  void hold(size_t unit, const Held& now) {
    const Held before = std::exchange(held_[unit], now);
    gathered_ += now.bytes - before.bytes;
    buffers_ += now.gather_buffers - before.gather_buffers;
    buffers_ += now.reduce_buffers - before.reduce_buffers;
    plan_.peak_gathered = std::max(plan_.peak_gathered, gathered_);
    plan_.peak_buffers = std::max(plan_.peak_buffers, buffers_);
  }

  // Whether anything travels for it.
  bool count_reduction(size_t index) {
    const UnitPlan& unit = plan_.units[index];
    const Traffic over_replicas =
        group(index).settings().requires_all_reduce ? unit.replica_reduce : Traffic{};
    plan_.reduce_scatter += unit.reduce;
    plan_.all_reduce += over_replicas;
    return unit.reduce.units + over_replicas.units > 0;
  }

  const ParamGroup& group(size_t unit) const { return *scheduler_.members()[unit].group; }

  const fsdp::Scheduler& scheduler_;
  StepPlan& plan_;
  fsdp::StepOrder order_;
  std::vector<size_t> places_;  // of the units' forwards
  std::vector<Held> held_;
  BufferCount gather_memory_;
  BufferCount compute_memory_;
  BufferCount reduce_memory_;
  int64_t gathered_ = 0;  // bytes alive
  int64_t buffers_ = 0;
};

// The root's gradients come first and last, those that are not reduced stay, and of the others one
// unit's are being reduced while the next one's arrive.
int64_t peak_whole_gradients(const std::vector<UnitPlan>& units,
                             const std::vector<fsdp::Scheduler::Member>& members) {
  int64_t staying = 0;
  int64_t before = 0;
  int64_t pair = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    const UnitPlan& unit = units[i];
    if (!settings_of(members[i]).requires_gradient_sync) {
      staying += unit.held_grad_bytes;
    } else if (unit.name.empty()) {
      staying += unit.whole_grad_bytes;
    } else {
      pair = std::max(pair, before + unit.whole_grad_bytes);
      before = unit.whole_grad_bytes;
    }
  }
  return staying + pair;
}

// A unit's are freed before the next one's come to its shards.
int64_t largest_gradients(const std::vector<UnitPlan>& units) {
  int64_t largest = 0;
  for (const UnitPlan& unit : units) {
    largest = std::max(largest, unit.grad_bytes);
  }
  return largest;
}

}  // namespace

StepPlan make_step_plan(fsdp::Unit& root, const PlanOptions& options) {
  const std::vector<fsdp::Scheduler::Member>& members = root.scheduler().members();
  check_can_be_planned(root, members);
  StepPlan plan;
  plan.mesh = root.mesh().to_string();
  plan.prefetch = root.policy().prefetch;
  plan.sequence_ranks = nn::sequence_ranks(*root.modules().front());
  plan.all_to_all = exchange_traffic(root, options.rows, options.sequence_length);
  for (const fsdp::Scheduler::Member& member : members) {
    plan.units.push_back(plan_unit(member, root.policy().keep_buffers));
    const UnitPlan& unit = plan.units.back();
    plan.shards += unit.shard_bytes;
    plan.gradients += unit.grad_bytes;
  }
  plan.optimizer = options.optimizer_bytes.value_or(
      static_cast<int64_t>(options.optimizer_states * static_cast<double>(plan.gradients)));
  const fsdp::StepShape& shape = root.tree().step_shape();
  const bool keeps_reduced = shape.accumulates && shape.reduced_last != fsdp::ReducedLast::kAll;
  if (shape.update_in_backward && !keeps_reduced) {
    plan.gradients = largest_gradients(plan.units);
  }
  plan.peak_whole_gradients = peak_whole_gradients(plan.units, members);
  if (!plan.units.empty()) {
    StepCount count(root.scheduler(), plan);
    count.forward();
    count.backward();
  }
  return plan;
}

}  // namespace fsdp2::plan
