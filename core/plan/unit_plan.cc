#include "core/plan/unit_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
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

// What a gather over `ranks` ranks allocates beside the parameters: the buffer of those that travel
// packed, and one parameter put in order before it is copied out.
int64_t gather_buffers(const ParamGroup& group, int ranks) {
  int64_t packed = 0;
  int64_t ordered = 0;
  for (const ShardedParam* param : group.params()) {
    if (param->is_whole() || ranks <= 1) {
      continue;
    }
    const int64_t piece = param->unsharded_bytes() / ranks;
    if (!fsdp::gathers_direct(*param, group.policy().comm_path, GatherSource::kShards)) {
      packed += fsdp::packed_slot_bytes(piece) * ranks;
      if (!param->layout().chunks_are_contiguous()) {
        ordered = std::max(ordered, param->unsharded_bytes());
      }
    }
  }
  return packed + ordered;
}

// What a reduction allocates beside the gradients that it takes: copies of them in the dtype that
// travels, scaled or packed, what a transport receives from the other ranks before it adds it up,
// and this rank's part. The replicas' turn comes when the first two are gone. kept_copies: bytes of
// copies that are in buffers which are kept.
int64_t reduce_buffers(const ParamGroup& group, int ranks, int64_t kept_copies = 0) {
  const auto& trainable = group.trainable();
  const bool stays = ranks <= 1 && group.replicate_comm() == nullptr &&
                     std::all_of(trainable.begin(), trainable.end(),
                                 [](const ShardedParam* param) { return param->is_whole(); });
  if (trainable.empty() || stays) {
    return 0;
  }
  const fsdp::GroupSettings& settings = group.settings();
  const bool scales = settings.gradient_divide_factor.has_value() || settings.force_sum_reduction;
  const int64_t item_bytes = size_of(group.reduce_dtype());
  int64_t copies = 0;
  int64_t reduced = 0;
  for (const ShardedParam* param : trainable) {
    const int64_t chunk = param->layout().padded_numel() * item_bytes;
    const bool direct = fsdp::reduces_direct(*param, group.policy().comm_path);
    const bool same = direct && !scales && param->compute_dtype() == group.reduce_dtype() &&
                      !group.reduces_in_group_memory();
    copies += same ? 0 : chunk * ranks;
    reduced += chunk;
  }
  const int64_t flags = static_cast<int64_t>(trainable.size()) * item_bytes;
  reduced += flags;
  copies += flags * ranks;
  const int64_t received = ranks > 1 ? reduced * ranks : 0;
  const Comm* replicas = group.replicate_comm();
  const int64_t of_replicas = replicas == nullptr ? 0 : reduced * replicas->size();
  return reduced + std::max(copies - kept_copies + received, of_replicas);
}

// The buffer of start_all_gather over `ranks` ranks, if something travels packed.
KeptSizes::Sizes kept_by_gather(const ParamGroup& group, int ranks, GatherSource source) {
  int64_t packed = 0;
  for (const ShardedParam* param : group.params()) {
    if (!param->is_whole() && ranks > 1 &&
        !fsdp::gathers_direct(*param, group.policy().comm_path, source)) {
      packed += fsdp::packed_slot_bytes(param->unsharded_bytes() / ranks) * ranks;
    }
  }
  return packed > 0 ? KeptSizes::Sizes{packed} : KeptSizes::Sizes();
}

// What start_reduce_scatter reads from copies.
KeptSizes::Sizes kept_by_reduction(const ParamGroup& group, int ranks) {
  KeptSizes::Sizes sizes;
  if (reduce_buffers(group, ranks) == 0) {
    return sizes;
  }
  const int64_t item_bytes = size_of(group.reduce_dtype());
  auto packed = static_cast<int64_t>(group.trainable().size());
  for (const ShardedParam* param : group.trainable()) {
    const int64_t numel = param->layout().padded_numel();
    if (!fsdp::reduces_direct(*param, group.policy().comm_path)) {
      packed += numel;
    } else if (ranks > 1 && (param->compute_dtype() != group.reduce_dtype() ||
                             group.reduces_in_group_memory())) {
      sizes.push_back(numel * ranks * item_bytes);
    }
  }
  sizes.push_back(packed * ranks * item_bytes);
  return sizes;
}

KeptSizes kept_sizes(const ParamGroup& group, int ranks) {
  KeptSizes kept;
  const bool slices = group.policy().reshard_after_forward == ReshardAfterForward::kSmaller;
  const int neighbours = slices ? group.policy().reshard_world : 1;
  for (const ShardedParam* param : group.params()) {
    if (!param->is_whole()) {
      kept.parameters.push_back(param->unsharded_bytes());
      if (slices) {
        kept.slices.push_back(param->unsharded_bytes() / neighbours);
      }
    }
  }
  kept.gather = kept_by_gather(group, ranks, GatherSource::kShards);
  kept.gather_slices = kept_by_gather(group, neighbours, GatherSource::kSlices);
  kept.reduce = kept_by_reduction(group, ranks);
  if (group.reduces_in_group_memory() && !group.trainable().empty()) {
    kept.reduced = reduced_buffers(group);
  }
  return kept;
}

int64_t sum_of(const KeptSizes::Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

int64_t held_grad_bytes(const ParamGroup& group) {
  int64_t bytes = 0;
  for (const ShardedParam* param : group.trainable()) {
    const int64_t item_bytes =
        std::max(size_of(param->compute_dtype()), size_of(group.reduce_dtype()));
    bytes += param->layout().global_numel() * item_bytes;
  }
  return bytes;
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

UnitPlan plan_unit(const fsdp::Scheduler::Member& member, bool keeps_buffers) {
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
  unit.held_grad_bytes = held_grad_bytes(group);
  unit.gather_buffers = gather_buffers(group, ranks);
  unit.reduce_buffers = reduce_buffers(group, ranks);
  if (keeps_buffers || group.gathers_in_group_memory() || group.reduces_in_group_memory()) {
    unit.kept = kept_sizes(group, ranks);
    unit.gather_buffers -= sum_of(unit.kept.gather);
    unit.reduce_buffers =
        reduce_buffers(group, ranks, sum_of(unit.kept.reduce)) - sum_of(unit.kept.reduced);
  }
  unit.dtypes = dtypes_of(group);
  unit.shard_dims = fmt::format("{}", fmt::join(dims, " and "));
  unit.ranks = fmt::format("{}", fmt::join(group.mesh().shape(), " x "));
  unit.gather = gather_traffic(group, ranks, GatherSource::kShards);
  if (group.policy().reshard_after_forward == ReshardAfterForward::kSmaller) {
    unit.gather_slices = gather_traffic(group, group.policy().reshard_world, GatherSource::kSlices);
  }
  unit.reduce = reduce_traffic(group, ranks);
  unit.replica_reduce = replica_traffic(group);
  return unit;
}

}  // namespace fsdp2::plan
