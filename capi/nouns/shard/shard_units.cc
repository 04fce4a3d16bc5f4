// What the units of a shard are.
#include <memory>

#include "capi/argument.h"
#include "capi/dtype.h"
#include "capi/nouns/module/module_path.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "include/fsdp2/unit.h"

namespace fsdp2::capi {

namespace {

static_assert(static_cast<int32_t>(fsdp::GroupState::kSharded) == FSDP2_UNIT_SHARDED &&
              static_cast<int32_t>(fsdp::GroupState::kGathering) == FSDP2_UNIT_GATHERING &&
              static_cast<int32_t>(fsdp::GroupState::kUnsharded) == FSDP2_UNIT_UNSHARDED &&
              static_cast<int32_t>(fsdp::GroupState::kPostForward) == FSDP2_UNIT_SLICED);

std::shared_ptr<fsdp::Unit> unit_at(ShardObject& shard, size_t index) {
  const auto units = shard.root->units();
  FSDP2_CHECK(index < units.size(), Code::kInvalidArgument, "index: there are {} units, found {}",
              units.size(), index);
  return units[index];
}

void add_group(const fsdp::ParamGroup& group, fsdp2_unit_info& info) {
  const auto& params = group.params();
  info.state = static_cast<int32_t>(group.state());
  info.n_parameters = static_cast<int32_t>(params.size());
  info.dtype = dtype_number(params.front()->dtype());
  info.compute_dtype = dtype_number(params.front()->compute_dtype());
  info.shard_dim = params.front()->layout().dim;
  for (const fsdp::ShardedParam* param : params) {
    const fsdp::ShardLayout& layout = param->layout();
    info.numel += layout.global_numel();
    info.sharded_bytes +=
        layout.padded_numel() * static_cast<int64_t>(c10::elementSize(param->dtype()));
    if (layout.dim != params.front()->layout().dim) {
      info.shard_dim = -1;
    }
  }
  info.unsharded_bytes = group.unsharded_bytes();
  info.live_bytes = group.live_bytes();
}

fsdp2_unit_info unit_info(const fsdp::Unit& unit) {
  fsdp2_unit_info info{};
  info.n_modules = static_cast<int32_t>(unit.modules().size());
  info.shard_dim = -1;
  info.is_root = unit.is_root() ? 1 : 0;
  if (unit.group() != nullptr) {
    add_group(*unit.group(), info);
  }
  return info;
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_shard_get_unit_count(fsdp2_shard shard, size_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::check_not_null(out, "out");
    capi::enter(call, *object->module);
    *out = object->root->units().size();
  });
}

fsdp2_status fsdp2_shard_get_unit_info(fsdp2_shard shard, size_t index, fsdp2_unit_info* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::check_out_struct(out, "out");
    capi::enter(call, *object->module);
    capi::fill_struct(out, capi::unit_info(*capi::unit_at(*object, index)));
  });
}

fsdp2_status fsdp2_shard_get_unit_name(fsdp2_shard shard, size_t index, char* buf, size_t cap,
                                       size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    capi::write_text(capi::unit_at(*object, index)->name(), buf, cap, needed);
  });
}

fsdp2_status fsdp2_shard_get_unit_index(fsdp2_shard shard, const char* unit, size_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::check_not_null(out, "out");
    capi::enter(call, *object->module);
    *out = capi::find_unit(object->module->module, unit, "unit")->index();
  });
}
