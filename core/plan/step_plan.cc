#include "core/plan/step_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/comm/transport/all_reduce_path.h"
#include "core/fsdp/group/collectives.h"
#include "core/fsdp/group/param_group.h"
#include "core/fsdp/scheduler.h"
#include "core/base/text.h"

namespace fsdp2::plan {

namespace {

using fsdp::ParamGroup;
using fsdp::ReshardAfterForward;
using fsdp::ShardedParam;

// Slots of a packed gather buffer; a test holds this to what collectives.cc does.
constexpr int64_t kSlotAlignment = 64;

int64_t packed_slot_bytes(int64_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

bool slices_go_direct(const ShardedParam& param, fsdp::CommPath path) {
  return path == fsdp::CommPath::kDirect ||
         (path == fsdp::CommPath::kAuto && param.unsharded_bytes() >= fsdp::kDirectBytes);
}

int64_t size_of(at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

// What start_all_gather issues over `ranks` ranks.
Traffic gather_traffic(const ParamGroup& group, int ranks, bool from_slices) {
  Traffic traffic;
  if (ranks <= 1) {
    return traffic;
  }
  int64_t packed_bytes = 0;
  bool packs = false;
  const fsdp::CommPath path = group.policy().comm_path;
  for (const ShardedParam* param : group.params()) {
    const int64_t piece = param->unsharded_bytes() / ranks;
    if (param->is_whole()) {
      continue;
    }
    if (from_slices ? slices_go_direct(*param, path) : fsdp::gathers_direct(*param, path)) {
      traffic.calls += 1;
      traffic.bytes += piece * (ranks - 1);
    } else {
      packs = true;
      packed_bytes += packed_slot_bytes(piece);
    }
  }
  traffic.calls += packs ? 1 : 0;
  traffic.bytes += packed_bytes * (ranks - 1);
  traffic.units = 1;
  return traffic;
}

at::ScalarType reduce_dtype(const ParamGroup& group) {
  return group.policy().mixed_precision.reduce_dtype.value_or(
      group.trainable().front()->compute_dtype());
}

// Bytes of the reduced buffers of a unit, one per transport call.
std::vector<int64_t> reduced_buffers(const ParamGroup& group) {
  std::vector<int64_t> buffers;
  auto packed = static_cast<int64_t>(group.trainable().size());  // an element each, as a flag
  for (const ShardedParam* param : group.trainable()) {
    const int64_t numel = param->layout().padded_numel();
    if (fsdp::reduces_direct(*param, group.policy().comm_path)) {
      buffers.push_back(numel * size_of(reduce_dtype(group)));
    } else {
      packed += numel;
    }
  }
  buffers.push_back(packed * size_of(reduce_dtype(group)));
  return buffers;
}

Traffic reduce_traffic(const ParamGroup& group, int ranks) {
  Traffic traffic;
  if (ranks <= 1 || group.trainable().empty()) {
    return traffic;
  }
  traffic.units = 1;
  for (const int64_t bytes : reduced_buffers(group)) {
    traffic.calls += 1;
    traffic.bytes += bytes * (ranks - 1);
  }
  return traffic;
}

Traffic replica_traffic(const ParamGroup& group) {
  Traffic traffic;
  const Comm* replicas = group.replicate_comm();
  if (replicas == nullptr || group.trainable().empty()) {
    return traffic;
  }
  traffic.units = 1;
  for (const int64_t bytes : reduced_buffers(group)) {
    traffic.calls += 1;
    const int64_t item_bytes = size_of(reduce_dtype(group));
    traffic.bytes += all_reduce_received_bytes(bytes / item_bytes, item_bytes, replicas->size());
  }
  return traffic;
}

std::string dtypes_of(const ParamGroup& group) {
  std::set<std::string> texts;
  for (const ShardedParam* param : group.params()) {
    const std::string own = c10::toString(param->dtype());
    texts.insert(param->dtype() == param->compute_dtype()
                     ? own
                     : own + " gathered as " + c10::toString(param->compute_dtype()));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

UnitPlan plan_unit(const fsdp::Scheduler::Member& member) {
  const ParamGroup& group = *member.group;
  const int ranks = group.shard_comm(Lane::kGather).size();
  UnitPlan unit;
  unit.name = member.name;
  unit.gathered_bytes = group.unsharded_bytes();
  std::set<int> dims;
  for (const ShardedParam* param : group.params()) {
    unit.parameters += 1;
    unit.numel += param->layout().global_numel();
    unit.shard_bytes += param->layout().padded_numel() * size_of(param->dtype());
    dims.insert(param->layout().dim);
  }
  for (const ShardedParam* param : group.trainable()) {
    unit.grad_bytes += param->layout().local_numel() * size_of(param->dtype());
    unit.whole_grad_bytes += param->layout().global_numel() * size_of(param->compute_dtype());
  }
  unit.dtypes = dtypes_of(group);
  unit.shard_dims = fmt::format("{}", fmt::join(dims, " and "));
  unit.gather = gather_traffic(group, ranks, false);
  if (group.policy().reshard_after_forward == ReshardAfterForward::kSmaller) {
    unit.gather_slices = gather_traffic(group, group.policy().reshard_world, true);
  }
  unit.reduce = reduce_traffic(group, ranks);
  unit.replica_reduce = replica_traffic(group);
  return unit;
}

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

// Goes through a step as the scheduler does, for a model that uses its units in their order.
class Rehearsal {
 public:
  Rehearsal(const std::vector<fsdp::Scheduler::Member>& members, StepPlan& plan)
      : members_(members), plan_(plan), states_(members.size(), State::kSharded) {}

  void run() {
    forward();
    backward();
  }

 private:
  enum class State { kSharded, kGathered, kGatheringFromSlice, kSlice };

  int64_t live(size_t unit) const {
    const int64_t whole = plan_.units[unit].gathered_bytes;
    const int64_t slice = whole / std::max(members_[unit].group->policy().reshard_world, 1);
    switch (states_[unit]) {
      case State::kSharded:
        return 0;
      case State::kGathered:
        return whole;
      case State::kGatheringFromSlice:
        return whole + slice;
      case State::kSlice:
        return slice;
    }
    return 0;
  }

  void enter(size_t unit, State state) {
    live_ -= live(unit);
    states_[unit] = state;
    live_ += live(unit);
    plan_.peak_gathered = std::max(plan_.peak_gathered, live_);
  }

  void gather(size_t unit, Turn& turn) {
    const bool from_slice = states_[unit] == State::kSlice;
    if (from_slice || states_[unit] == State::kSharded) {
      plan_.all_gather += from_slice ? plan_.units[unit].gather_slices : plan_.units[unit].gather;
      turn.actions.push_back({ActionKind::kGather, unit});
      enter(unit, from_slice ? State::kGatheringFromSlice : State::kGathered);
    }
  }

  void free(size_t unit, Turn& turn) {
    if (states_[unit] != State::kSharded) {
      turn.actions.push_back({ActionKind::kFree, unit});
      enter(unit, State::kSharded);
    }
  }

  void gather_until(const std::vector<size_t>& order, size_t until, Turn& turn) {
    for (; cursor_ < std::min(until, order.size()); ++cursor_) {
      if (!in_backward_ || settings(order[cursor_]).unshard_in_backward) {
        gather(order[cursor_], turn);
      }
    }
  }

  // As far as the schedule goes ahead, or the last of the units that this one names.
  size_t prefetched_until(const std::vector<size_t>& order, size_t position,
                          const std::vector<std::weak_ptr<ParamGroup>>& named) const {
    size_t until = position + 1 + static_cast<size_t>(plan_.prefetch);
    for (size_t i = 0; i < order.size(); ++i) {
      const bool is_named = std::any_of(named.begin(), named.end(), [&](const auto& group) {
        return group.lock().get() == members_[order[i]].group.get();
      });
      until = is_named ? std::max(until, i + 1) : until;
    }
    return until;
  }

  void leave_forward(size_t unit, Turn& turn) {
    const std::optional<bool> by_hand = settings(unit).reshard_after_forward;
    if (by_hand) {
      if (*by_hand) {
        free(unit, turn);
      }
      return;
    }
    switch (members_[unit].group->policy().reshard_after_forward) {
      case ReshardAfterForward::kNever:
        return;
      case ReshardAfterForward::kSmaller:
        turn.actions.push_back({ActionKind::kKeepSlice, unit});
        enter(unit, State::kSlice);
        return;
      case ReshardAfterForward::kAuto:
        if (members_[unit].name.empty()) {
          return;
        }
        break;
      case ReshardAfterForward::kAlways:
        break;
    }
    free(unit, turn);
  }

  void forward() {
    std::vector<size_t> order;
    for (size_t i = 0; i < members_.size(); ++i) {
      order.push_back(i);
    }
    cursor_ = 0;
    std::vector<size_t> open;
    for (const size_t unit : order) {
      while (!open.empty() && !is_inside(members_[unit].name, members_[open.back()].name)) {
        leave_forward(open.back(), plan_.forward.back());
        backward_order_.push_back(open.back());
        open.pop_back();
      }
      plan_.forward.push_back({unit, {}});
      Turn& turn = plan_.forward.back();
      gather_until(order, unit + 1, turn);
      enter(unit, State::kGathered);
      gather_until(order, prefetched_until(order, unit, settings(unit).forward_prefetch), turn);
      open.push_back(unit);
    }
    for (; !open.empty(); open.pop_back()) {
      leave_forward(open.back(), plan_.forward.back());
      backward_order_.push_back(open.back());
    }
    std::reverse(backward_order_.begin(), backward_order_.end());
  }

  void reduce(size_t unit, Turn& turn) {
    if (!settings(unit).requires_gradient_sync) {
      return;
    }
    const UnitPlan& plan = plan_.units[unit];
    const Traffic over_replicas =
        settings(unit).requires_all_reduce ? plan.replica_reduce : Traffic{};
    plan_.reduce_scatter += plan.reduce;
    plan_.all_reduce += over_replicas;
    if (plan.reduce.units + over_replicas.units > 0) {
      turn.actions.push_back({ActionKind::kReduce, unit});
    }
  }

  void finish(size_t unit, Turn& turn) {
    if (settings(unit).reshard_after_backward) {
      free(unit, turn);
    }
    reduce(unit, turn);
  }

  // A unit is done when one begins that is not inside it.
  void backward() {
    cursor_ = 0;
    in_backward_ = true;
    std::vector<size_t> open;
    for (size_t position = 0; position < backward_order_.size(); ++position) {
      const size_t unit = backward_order_[position];
      Turn turn{unit, {}};
      while (!open.empty() && !is_inside(members_[unit].name, members_[open.back()].name)) {
        finish(open.back(), turn);
        open.pop_back();
      }
      gather_until(backward_order_, position + 1, turn);
      if (settings(unit).unshard_in_backward) {
        enter(unit, State::kGathered);
      }
      gather_until(backward_order_,
                   prefetched_until(backward_order_, position, settings(unit).backward_prefetch),
                   turn);
      plan_.backward.push_back(std::move(turn));
      open.push_back(unit);
    }
    for (; !open.empty(); open.pop_back()) {
      finish(open.back(), plan_.backward.back());
    }
  }

  const fsdp::GroupSettings& settings(size_t unit) const { return settings_of(members_[unit]); }

  const std::vector<fsdp::Scheduler::Member>& members_;
  StepPlan& plan_;
  std::vector<State> states_;
  std::vector<size_t> backward_order_;
  size_t cursor_ = 0;
  bool in_backward_ = false;
  int64_t live_ = 0;
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
    if (unit.name.empty() || !settings_of(members[i]).requires_gradient_sync) {
      staying += unit.whole_grad_bytes;
    } else {
      pair = std::max(pair, before + unit.whole_grad_bytes);
      before = unit.whole_grad_bytes;
    }
  }
  return staying + pair;
}

}  // namespace

Traffic& Traffic::operator+=(const Traffic& other) {
  units += other.units;
  calls += other.calls;
  bytes += other.bytes;
  return *this;
}

bool Traffic::operator==(const Traffic& other) const {
  return units == other.units && calls == other.calls && bytes == other.bytes;
}

StepPlan make_step_plan(fsdp::Unit& root, const PlanOptions& options) {
  const std::vector<fsdp::Scheduler::Member>& members = root.tree().members();
  check_can_be_planned(root, members);
  StepPlan plan;
  plan.mesh = root.mesh().to_string();
  plan.prefetch = root.policy().prefetch;
  for (const fsdp::Scheduler::Member& member : members) {
    plan.units.push_back(plan_unit(member));
    const UnitPlan& unit = plan.units.back();
    plan.shards += unit.shard_bytes;
    plan.gradients += unit.grad_bytes;
  }
  plan.optimizer = static_cast<int64_t>(options.optimizer_states * plan.gradients);
  plan.peak_whole_gradients = peak_whole_gradients(plan.units, members);
  Rehearsal(members, plan).run();
  return plan;
}

}  // namespace fsdp2::plan
