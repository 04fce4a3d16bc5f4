// What the units of a shard have done: events, counts, the table of them.
#include <vector>

#include "capi/argument.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "include/fsdp2/unit.h"

namespace fsdp2::capi {

namespace {

static_assert(static_cast<int32_t>(fsdp::EventKind::kAllGather) == FSDP2_EVENT_ALL_GATHER &&
              static_cast<int32_t>(fsdp::EventKind::kUnshard) == FSDP2_EVENT_UNSHARD &&
              static_cast<int32_t>(fsdp::EventKind::kReshard) == FSDP2_EVENT_RESHARD &&
              static_cast<int32_t>(fsdp::EventKind::kReduceScatter) == FSDP2_EVENT_REDUCE_SCATTER &&
              static_cast<int32_t>(fsdp::EventKind::kPostBackward) == FSDP2_EVENT_POST_BACKWARD);

// Members of the schedule are the units that have parameters, in their order.
std::vector<size_t> units_by_member(ShardObject& shard) {
  std::vector<size_t> indices;
  for (const auto& unit : shard.root->units()) {
    if (unit->group() != nullptr) {
      indices.push_back(unit->index());
    }
  }
  return indices;
}

void get_events(ShardObject& shard, int32_t* kinds, size_t* units, size_t cap, size_t* needed) {
  check_not_null(needed, "needed");
  check_array(kinds, cap, "kinds");
  check_array(units, cap, "units");
  const std::vector<fsdp::EventLog::Entry> entries = shard.root->scheduler().event_log().entries();
  *needed = entries.size();
  if (kinds == nullptr) {
    return;
  }
  FSDP2_CHECK(cap >= entries.size(), Code::kBufferTooSmall, "expected room for {} events, found {}",
              entries.size(), cap);
  const std::vector<size_t> unit_of = units_by_member(shard);
  for (size_t i = 0; i < entries.size(); ++i) {
    kinds[i] = static_cast<int32_t>(entries[i].kind);
    units[i] = unit_of[entries[i].group];
  }
}

fsdp2_shard_stats shard_stats(ShardObject& shard) {
  fsdp::Scheduler& scheduler = shard.root->scheduler();
  const fsdp::Stats& stats = scheduler.stats();
  const CommCounters now = shard.root->comm_counters();
  const CommCounters& before = shard.counters_at_reset;
  fsdp2_shard_stats out{};
  out.n_units = static_cast<int32_t>(scheduler.members().size());
  out.all_gathers = stats.all_gathers;
  out.reduce_scatters = stats.reduce_scatters;
  out.all_reduces = stats.all_reduces;
  out.all_gather_bytes = now.all_gather_bytes - before.all_gather_bytes;
  out.reduce_scatter_bytes = now.reduce_scatter_bytes - before.reduce_scatter_bytes;
  out.all_reduce_bytes = now.all_reduce_bytes - before.all_reduce_bytes;
  out.all_to_alls = now.all_to_alls - before.all_to_alls;
  out.all_to_all_bytes = now.all_to_all_bytes - before.all_to_all_bytes;
  out.unsharded_bytes = stats.unsharded_bytes;
  out.peak_unsharded_bytes = stats.peak_unsharded_bytes;
  out.kept_bytes = scheduler.buffers().kept_bytes();
  return out;
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_shard_get_events(fsdp2_shard shard, int32_t* kinds, size_t* units, size_t cap,
                                    size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    capi::get_events(*object, kinds, units, cap, needed);
  });
}

fsdp2_status fsdp2_shard_clear_events(fsdp2_shard shard) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    object->root->scheduler().clear_events();
  });
}

fsdp2_status fsdp2_shard_get_stats(fsdp2_shard shard, fsdp2_shard_stats* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::check_out_struct(out, "out");
    capi::enter(call, *object->module);
    capi::fill_struct(out, capi::shard_stats(*object));
  });
}

fsdp2_status fsdp2_shard_reset_stats(fsdp2_shard shard) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    object->root->scheduler().reset_stats();
    object->counters_at_reset = object->root->comm_counters();
  });
}

fsdp2_status fsdp2_shard_describe(fsdp2_shard shard, char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    capi::write_text(object->root->describe(), buf, cap, needed);
  });
}
