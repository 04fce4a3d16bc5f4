#include <string>

#include "capi/argument.h"
#include "capi/guard.h"
#include "client/planned_run.h"
#include "include/fsdp2/config.h"

namespace fsdp2::capi {

namespace {

client::PlannedRun read_run(const char* plan) {
  return client::PlannedRun(read_text(plan, kMaxText, "plan"));
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
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
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    *out = capi::read_run(plan).lay_out_mesh(job).release();
  });
}

fsdp2_status fsdp2_config_make_module(const char* plan, fsdp2_module* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    *out = capi::read_run(plan).make_model().release();
  });
}

fsdp2_status fsdp2_config_make_shard(const char* plan, fsdp2_module module, fsdp2_mesh mesh,
                                     fsdp2_shard* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    *out = capi::read_run(plan).shard_model(module, mesh).release();
  });
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
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    *out = capi::read_run(plan).open_data(mesh, module).release();
  });
}

fsdp2_status fsdp2_config_make_step(const char* plan, fsdp2_shard shard, fsdp2_optimizer optimizer,
                                    fsdp2_step* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    *out = capi::read_run(plan).make_step(shard, optimizer).release();
  });
}

fsdp2_status fsdp2_config_settle_epochs(const char* plan, int64_t steps_per_epoch, char* buf,
                                        size_t cap, size_t* needed) {
  return guard(__func__, [&](Call&) {
    constexpr int64_t kMostSteps = int64_t{1} << 62;
    const int64_t steps = capi::check_integer(steps_per_epoch, 1, kMostSteps, "steps_per_epoch");
    capi::write_text(capi::read_run(plan).text_with_steps(steps), buf, cap, needed);
  });
}
