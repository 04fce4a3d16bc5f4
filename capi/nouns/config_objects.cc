#include <cstdint>
#include <optional>
#include <string>

#include "capi/argument.h"
#include "capi/guard.h"
#include "capi/object.h"
#include "client/planned_run.h"
#include "core/comm/agreement.h"
#include "include/fsdp2/config.h"

namespace fsdp2::capi {

namespace {

client::PlannedRun read_run(const char* plan) {
  return client::PlannedRun(read_text(plan, kMaxText, "plan"));
}

Team& enter_team(Call& call, const MeshObject& mesh) {
  enter(call, mesh);
  return mesh.mesh->team();
}

Team& enter_team(Call& call, const ShardObject& shard) {
  enter_collective(call, *shard.module);
  return shard.root->mesh().team();
}

// The first half of a collective call: all ranks of a mesh or shard look at their plans and other
// arguments together. If they are wrong on one, the others are told, and the mesh stays usable. The
// second half is made of calls that enter the mesh by themselves.
template <typename Handle, typename Look>
fsdp2_status read_on_all_ranks(const char* function, Handle handle, const char* plan,
                               const void* out, const Look& look,
                               std::optional<client::PlannedRun>* run) {
  return guard(function, [&](Call& call) {
    const auto object = pin(handle);
    agree(enter_team(call, *object), function, [&] {
      check_not_null(out, "out");
      run->emplace(read_run(plan));
      look(**run);
      return (*run)->shared_text();
    });
  });
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::client::PlannedRun;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_config_set_up_process(const char* plan) {
  return guard(__func__, [&](Call&) { capi::read_run(plan).set_up_process(); });
}

fsdp2_status fsdp2_config_join_job(const char* plan, fsdp2_mesh* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    *out = capi::read_run(plan).join_job().release();
  });
}

fsdp2_status fsdp2_config_make_mesh(const char* plan, fsdp2_mesh job, fsdp2_mesh* out) {
  std::optional<PlannedRun> run;
  const auto look = [&](const PlannedRun&) {};
  const fsdp2_status status = capi::read_on_all_ranks(__func__, job, plan, out, look, &run);
  if (status != FSDP2_OK) {
    return status;
  }
  return guard(__func__, [&](Call&) { *out = run->lay_out_mesh(job).release(); });
}

fsdp2_status fsdp2_config_make_module(const char* plan, fsdp2_module* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    *out = capi::read_run(plan).make_model().release();
  });
}

fsdp2_status fsdp2_config_make_shard(const char* plan, fsdp2_module module, fsdp2_mesh mesh,
                                     fsdp2_shard* out) {
  std::optional<PlannedRun> run;
  const auto look = [&](const PlannedRun&) { static_cast<void>(capi::pin(module)); };
  const fsdp2_status status = capi::read_on_all_ranks(__func__, mesh, plan, out, look, &run);
  if (status != FSDP2_OK) {
    return status;
  }
  return guard(__func__, [&](Call&) { *out = run->shard_model(module, mesh).release(); });
}

fsdp2_status fsdp2_config_make_optimizer(const char* plan, fsdp2_shard shard,
                                         fsdp2_optimizer* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    *out = capi::read_run(plan).make_optimizer(shard).release();
  });
}

fsdp2_status fsdp2_config_make_loader(const char* plan, fsdp2_module module, fsdp2_mesh mesh,
                                      fsdp2_loader* out) {
  std::optional<PlannedRun> run;
  const auto look = [&](const PlannedRun& read) {
    static_cast<void>(capi::pin(module));
    read.check_data();
  };
  const fsdp2_status status = capi::read_on_all_ranks(__func__, mesh, plan, out, look, &run);
  if (status != FSDP2_OK) {
    return status;
  }
  return guard(__func__, [&](Call&) { *out = run->open_data(mesh, module).release(); });
}

fsdp2_status fsdp2_config_make_step(const char* plan, fsdp2_shard shard, fsdp2_optimizer optimizer,
                                    fsdp2_step* out) {
  std::optional<PlannedRun> run;
  const auto look = [&](const PlannedRun&) { static_cast<void>(capi::pin(optimizer)); };
  const fsdp2_status status = capi::read_on_all_ranks(__func__, shard, plan, out, look, &run);
  if (status != FSDP2_OK) {
    return status;
  }
  return guard(__func__, [&](Call&) { *out = run->make_step(shard, optimizer).release(); });
}

fsdp2_status fsdp2_config_settle_epochs(const char* plan, int64_t steps_per_epoch, char* buf,
                                        size_t cap, size_t* needed) {
  return guard(__func__, [&](Call&) {
    constexpr int64_t kMostSteps = int64_t{1} << 62;
    const int64_t steps = capi::check_integer(steps_per_epoch, 1, kMostSteps, "steps_per_epoch");
    capi::write_text(capi::read_run(plan).text_with_steps(steps), buf, cap, needed);
  });
}
