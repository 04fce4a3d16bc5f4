#include "include/fsdp2/shard.h"

#include "capi/argument.h"
#include "capi/nouns/mesh/mesh_create.h"
#include "capi/nouns/shard/shard_create.h"
#include "capi/nouns/shard/shard_options.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/train/step/strategy.h"

namespace fsdp2::capi {

namespace {

int32_t reshard_number(fsdp::ReshardAfterForward reshard) {
  return reshard == fsdp::ReshardAfterForward::kNever ? FSDP2_RESHARD_NEVER : FSDP2_RESHARD_AUTO;
}

void apply_strategy(const char* name, int64_t fsdp_size, fsdp2_mesh_options* mesh,
                    fsdp2_shard_options* shard) {
  check_out_struct(mesh, "mesh");
  check_out_struct(shard, "options");
  const fsdp2_mesh_options place = read_struct(mesh, kMeshDefaults, "mesh");
  read_struct(shard, kShardDefaults, "options");
  FSDP2_CHECK(place.n_dims == 0 && place.shape == nullptr, Code::kInvalidArgument,
              "mesh: expected one without a shape, which the strategy decides on, found {} dims",
              place.n_dims);
  const train::Strategy strategy =
      train::read_strategy(read_text(name, kMaxName, "name"), fsdp_size);
  mesh->fsdp_size = strategy.fsdp_size;
  shard->reshard_after_forward = reshard_number(strategy.reshard_after_forward);
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_shard_options_init(fsdp2_shard_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kShardDefaults, "options");
  });
}

fsdp2_status fsdp2_shard_apply_strategy(const char* name, int64_t fsdp_size,
                                        fsdp2_mesh_options* mesh, fsdp2_shard_options* options) {
  return guard(__func__, [&](Call&) { capi::apply_strategy(name, fsdp_size, mesh, options); });
}

fsdp2_status fsdp2_shard_make_unit(fsdp2_module module, fsdp2_mesh mesh, const char* const* names,
                                   size_t n_names, const fsdp2_shard_options* options) {
  return guard(__func__,
               [&](Call& call) { capi::make_unit(call, module, mesh, names, n_names, options); });
}

fsdp2_status fsdp2_shard_make_units(fsdp2_module module, fsdp2_mesh mesh,
                                    const fsdp2_shard_options* options) {
  return guard(__func__, [&](Call& call) { capi::make_units(call, module, mesh, options); });
}

fsdp2_status fsdp2_shard_create(fsdp2_module module, fsdp2_mesh mesh,
                                const fsdp2_shard_options* options, fsdp2_shard* out) {
  return guard(__func__,
               [&](Call& call) { out->id = capi::create_shard(call, module, mesh, options, out); });
}

fsdp2_status fsdp2_shard_destroy(fsdp2_shard shard) {
  return capi::destroy(__func__, capi::Kind::kShard, shard.id);
}

fsdp2_status fsdp2_shard_duplicate(fsdp2_shard shard, fsdp2_shard* out) {
  return capi::duplicate(__func__, capi::Kind::kShard, shard, out);
}

fsdp2_status fsdp2_shard_load_values(fsdp2_shard shard) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);
    fsdp2::train::Session& session = *object->module->session;
    capi::check_on_all_ranks(call, *object->module, [&] { session.check_awaits_values(); });
    session.agree_on_values();
    call.share_failure();
    session.load_values();
  });
}

fsdp2_status fsdp2_shard_get_mesh(fsdp2_shard shard, fsdp2_mesh* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::check_not_null(out, "out");
    capi::enter(call, *object->module);
    out->id = capi::give(capi::Kind::kMesh, object->module->mesh);
  });
}
