#include "core/plan/unit_plan.h"

#include <fmt/ranges.h>

#include <set>
#include <vector>

#include "core/comm/transport/all_reduce_path.h"
#include "core/fsdp/group/collectives.h"
#include "core/fsdp/group/param_group.h"

namespace fsdp2::plan {

namespace {

using fsdp::GatherSource;
using fsdp::ParamGroup;
using fsdp::ReshardAfterForward;
using fsdp::ShardedParam;

int64_t size_of(at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

// What start_all_gather issues over `ranks` ranks.
Traffic gather_traffic(const ParamGroup& group, int ranks, GatherSource source) {
  Traffic traffic;
  if (ranks <= 1) {
    return traffic;
  }
  int64_t packed_bytes = 0;
  bool packs = false;
  for (const ShardedParam* param : group.params()) {
    const int64_t piece = param->unsharded_bytes() / ranks;
    if (param->is_whole()) {
      continue;
    }
    if (fsdp::gathers_direct(*param, group.policy().comm_path, source)) {
      traffic.calls += 1;
      traffic.bytes += piece * (ranks - 1);
    } else {
      packs = true;
      packed_bytes += fsdp::packed_slot_bytes(piece);
    }
  }
  traffic.calls += packs ? 1 : 0;
  traffic.bytes += packed_bytes * (ranks - 1);
  traffic.units = 1;
  return traffic;
}

// Bytes of the reduced buffers of a unit, one per transport call.
std::vector<int64_t> reduced_buffers(const ParamGroup& group) {
  std::vector<int64_t> buffers;
  auto packed = static_cast<int64_t>(group.trainable().size());  // an element each, as a flag
  for (const ShardedParam* param : group.trainable()) {
    const int64_t numel = param->layout().padded_numel();
    if (fsdp::reduces_direct(*param, group.policy().comm_path)) {
      buffers.push_back(numel * size_of(group.reduce_dtype()));
    } else {
      packed += numel;
    }
  }
  buffers.push_back(packed * size_of(group.reduce_dtype()));
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
    const int64_t item_bytes = size_of(group.reduce_dtype());
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
  unit.gather = gather_traffic(group, ranks, GatherSource::kShards);
  if (group.policy().reshard_after_forward == ReshardAfterForward::kSmaller) {
    unit.gather_slices = gather_traffic(group, group.policy().reshard_world, GatherSource::kSlices);
  }
  unit.reduce = reduce_traffic(group, ranks);
  unit.replica_reduce = replica_traffic(group);
  return unit;
}

}  // namespace fsdp2::plan
