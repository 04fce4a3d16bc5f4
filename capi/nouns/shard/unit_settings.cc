// What is set about units, told, and all of a unit's settings at once.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "capi/argument.h"
#include "capi/fields.h"
#include "capi/nouns/module/module_path.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "include/fsdp2/shard.h"
#include "include/fsdp2/unit.h"

namespace fsdp2::capi {

namespace {

std::optional<bool> read_set_reshard(int32_t reshard) {
  return read_enum<std::optional<bool>>(
      reshard,
      {{FSDP2_RESHARD_AUTO, std::nullopt},
       {FSDP2_RESHARD_ALWAYS, true},
       {FSDP2_RESHARD_NEVER, false}},
      "settings.reshard_after_forward: expected FSDP2_RESHARD_AUTO (0), _ALWAYS (1) or _NEVER "
      "(-1)");
}

int32_t set_reshard_number(std::optional<bool> reshard) {
  if (!reshard) {
    return FSDP2_RESHARD_AUTO;
  }
  return *reshard ? FSDP2_RESHARD_ALWAYS : FSDP2_RESHARD_NEVER;
}

}  // namespace

// clang-format off
template <>
inline constexpr auto kFields<fsdp2_unit_settings> = std::tuple(
    Field("requires_gradient_sync", &fsdp2_unit_settings::requires_gradient_sync, Flag()),
    Field("requires_all_reduce", &fsdp2_unit_settings::requires_all_reduce, Flag()),
    Field("reshard_after_forward", &fsdp2_unit_settings::reshard_after_forward, ReadBy<read_set_reshard>()),
    Field("reshard_after_backward", &fsdp2_unit_settings::reshard_after_backward, Flag()),
    Field("unshard_in_backward", &fsdp2_unit_settings::unshard_in_backward, Flag()),
    Field("reduce_unused_parameters", &fsdp2_unit_settings::reduce_unused_parameters, Flag()),
    Field("force_sum_reduction", &fsdp2_unit_settings::force_sum_reduction, Flag()),
    Field("gradient_divide_factor", &fsdp2_unit_settings::gradient_divide_factor, NumberRange{0.0, std::numeric_limits<double>::max()}),
    Field("allocate_memory_from_process_group", &fsdp2_unit_settings::allocate_memory_from_process_group, Flag()),
    Field("reserved", &fsdp2_unit_settings::reserved, Reserved()));
// clang-format on

namespace {

// A unit without parameters has none of its own: those that units begin with stand for them.
fsdp::GroupSettings settings_of(const fsdp::Unit& unit) {
  return unit.group() != nullptr ? unit.group()->settings() : fsdp::GroupSettings();
}

fsdp2_unit_settings unit_settings(const fsdp::Unit& unit) {
  const fsdp::GroupSettings settings = settings_of(unit);
  fsdp2_unit_settings out{};
  out.requires_gradient_sync = settings.requires_gradient_sync ? 1 : 0;
  out.requires_all_reduce = settings.requires_all_reduce ? 1 : 0;
  out.reshard_after_forward = set_reshard_number(settings.reshard_after_forward);
  out.reshard_after_backward = settings.reshard_after_backward ? 1 : 0;
  out.unshard_in_backward = settings.unshard_in_backward ? 1 : 0;
  out.reduce_unused_parameters = settings.reduce_unused_parameters ? 1 : 0;
  out.force_sum_reduction = settings.force_sum_reduction ? 1 : 0;
  out.gradient_divide_factor = settings.gradient_divide_factor.value_or(0.0);
  out.allocate_memory_from_process_group = settings.allocate_memory_from_process_group ? 1 : 0;
  return out;
}

void set_unit_settings(fsdp::Unit& unit, const fsdp2_unit_settings* given) {
  check_not_null(given, "settings");
  const fsdp2_unit_settings settings = read_struct(given, unit_settings(unit), "settings");
  check_fields(settings, "settings");
  const double factor = settings.gradient_divide_factor;
  const bool recurse = false;
  const bool takes_group_memory = settings.allocate_memory_from_process_group != 0;
  if (takes_group_memory) {
    unit.check_groups_give_memory();  // before anything is changed, as the next
  }
  unit.set_unshard_in_backward(settings.unshard_in_backward != 0);
  unit.set_requires_gradient_sync(settings.requires_gradient_sync != 0, recurse);
  unit.set_requires_all_reduce(settings.requires_all_reduce != 0, recurse);
  unit.set_reshard_after_forward(read_set_reshard(settings.reshard_after_forward), recurse);
  unit.set_reshard_after_backward(settings.reshard_after_backward != 0, recurse);
  unit.set_reduce_unused_parameters(settings.reduce_unused_parameters != 0, recurse);
  unit.set_force_sum_reduction_for_comms(settings.force_sum_reduction != 0);
  unit.set_allocate_memory_from_process_group_for_comm(takes_group_memory);
  unit.set_gradient_divide_factor(factor > 0.0 ? std::optional(factor) : std::nullopt);
}

using PrefetchList = std::vector<std::weak_ptr<fsdp::ParamGroup>> fsdp::GroupSettings::*;

std::vector<size_t> prefetched_units(ShardObject& shard, const fsdp::Unit& unit,
                                     PrefetchList list) {
  const auto units = shard.root->units();
  const fsdp::GroupSettings settings = settings_of(unit);
  std::vector<size_t> indices;
  for (const std::weak_ptr<fsdp::ParamGroup>& entry : settings.*list) {
    const auto found = std::find_if(units.begin(), units.end(), [&](const auto& candidate) {
      return candidate->shared_group() == entry.lock();
    });
    indices.push_back(static_cast<size_t>(found - units.begin()));
  }
  return indices;
}

fsdp2_status get_prefetch(const char* function, fsdp2_shard shard, const char* unit, size_t* units,
                          size_t cap, size_t* needed, PrefetchList list) {
  return guard(function, [&](Call& call) {
    const auto object = pin(shard);
    enter(call, *object->module);
    const auto found = find_unit(object->module->module, unit, "unit");
    write_numbers(prefetched_units(*object, *found, list), "units", units, cap, needed);
  });
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
using fsdp2::fsdp::GroupSettings;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_shard_get_is_last_backward(fsdp2_shard shard, int32_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::check_not_null(out, "out");
    capi::enter(call, *object->module);
    *out = object->root->is_last_backward() ? 1 : 0;
  });
}

fsdp2_status fsdp2_shard_get_unit_settings(fsdp2_shard shard, const char* unit,
                                           fsdp2_unit_settings* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::check_out_struct(out, "out");
    capi::enter(call, *object->module);
    const auto found = capi::find_unit(object->module->module, unit, "unit");
    capi::fill_struct(out, capi::unit_settings(*found));
  });
}

fsdp2_status fsdp2_shard_set_unit_settings(fsdp2_shard shard, const char* unit,
                                           const fsdp2_unit_settings* settings) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    const auto found = capi::find_unit(object->module->module, unit, "unit");
    capi::set_unit_settings(*found, settings);
  });
}

fsdp2_status fsdp2_shard_get_forward_prefetch(fsdp2_shard shard, const char* unit, size_t* units,
                                              size_t cap, size_t* needed) {
  return capi::get_prefetch(__func__, shard, unit, units, cap, needed,
                            &GroupSettings::forward_prefetch);
}

fsdp2_status fsdp2_shard_get_backward_prefetch(fsdp2_shard shard, const char* unit, size_t* units,
                                               size_t cap, size_t* needed) {
  return capi::get_prefetch(__func__, shard, unit, units, cap, needed,
                            &GroupSettings::backward_prefetch);
}
