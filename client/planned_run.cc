#include "client/planned_run.h"

#include "client/objects.h"
#include "client/param_dtype.h"
#include "client/reshard_budget.h"
#include "core/config/checks/option_checks.h"
#include "core/config/checks/places.h"
#include "core/config/checks/require.h"
#include "core/config/checks/sharding_checks.h"
#include "core/config/dialects/read_plan.h"
#include "core/config/resolve.h"

namespace fsdp2::client {

namespace {

int64_t world_size_of(fsdp2_mesh mesh) {
  return info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, mesh).world_size;
}

}  // namespace

PlannedRun::PlannedRun(const std::string& plan)
    : text_(plan), plan_(config::plan_in(plan, {"plan", "", {}})) {
  config::leave_batch_to_ranks(&plan_);
  config::with_places(plan_, [&] { config::check_values(plan_.options); });
}

void PlannedRun::check_data() const {
  config::with_places(plan_, [&] {
    config::check_data(plan_.options);
    config::check_exported(plan_.options);
  });
}

void PlannedRun::set_up_process() const { client::set_up_process(plan_.options); }

Mesh PlannedRun::join_job() const {
  Mesh job;
  client::join_job(plan_, &job);
  return job;
}

Mesh PlannedRun::lay_out_mesh(fsdp2_mesh job) const {
  const int64_t ranks = world_size_of(job);
  config::check_world(plan_, ranks);
  config::with_places(plan_,
                      [&] { config::check_sharding_for_world(plan_.options.sharding(), ranks); });
  Mesh mesh;
  client::lay_out_mesh(plan_.options, job, &mesh);
  return mesh;
}

Module PlannedRun::make_model() const {
  Module module;
  config::with_places(plan_, [&] {
    config::check_model_is_given(plan_.options);
    client::make_model(plan_.options, &module, plan_.origin_of("config-overrides"));
  });
  return module;
}

Loader PlannedRun::open_data(fsdp2_mesh mesh, fsdp2_module module) const {
  check_data();
  const auto model = info_of<fsdp2_module_info>(fsdp2_module_get_info, module);
  const config::Plan plan = settled_on(mesh);
  config::with_places(plan_,
                      [&] { config::check_options_for_model(plan.options, model.max_positions); });
  Loader loader;
  client::open_data(plan.options, mesh, model.vocab_size, &loader);
  return loader;
}

Shard PlannedRun::shard_model(fsdp2_module module, fsdp2_mesh mesh) const {
  const int64_t ranks = world_size_of(mesh);
  const bool has_budget = plan_.options.reshard_budget_gb > 0;
  config::Plan plan = has_budget ? settled_on(mesh) : plan_;
  Shard shard;
  config::with_places(plan_, [&] {
    config::check_sharding_for_world(plan.options.sharding(), ranks);
    settle_param_dtype(&plan, mesh);
    if (has_budget) {
      config::check_model_is_given(plan.options);
      config::check_exported(plan.options);
    }
    client::shard_model(plan.options, module, mesh, &shard);
    if (has_budget) {  // after the ranks have agreed how to multiply, which the choice depends on
      keep_gathered(choose_within_budget(plan.options, mesh, config::data_ranks(plan, ranks)),
                    shard);
    }
  });
  return shard;
}

Optimizer PlannedRun::make_optimizer(fsdp2_shard shard) const {
  Optimizer optimizer;
  config::with_places(plan_, [&] { client::make_optimizer(plan_.options, shard, &optimizer); });
  return optimizer;
}

Step PlannedRun::make_step(fsdp2_shard shard, fsdp2_optimizer optimizer) const {
  config::require(plan_.options.epochs == 0,
                  "--epochs (" + plan_.origin_of("epochs") +
                      "): expected steps, which fsdp2_config_settle_epochs makes of them");
  Mesh mesh;
  check(fsdp2_shard_get_mesh(shard, mesh.out()));
  config::Plan plan = settled_on(mesh.get());
  settle_param_dtype(&plan, mesh.get());
  Step step;
  client::make_step(plan.options, shard, optimizer, &step);
  return step;
}

std::string PlannedRun::text_with_steps(int64_t steps_per_epoch) const {
  if (plan_.options.epochs == 0) {
    return text_;
  }
  config::Plan plan = plan_;
  config::resolve_epochs(&plan, steps_per_epoch);
  return plan.text();
}

config::Plan PlannedRun::settled_on(fsdp2_mesh mesh) const {
  config::Plan plan = plan_;
  config::settle_for_world(&plan, world_size_of(mesh));
  return plan;
}

}  // namespace fsdp2::client
