#include "cli/plan/planned_model.h"

#include <utility>

#include "cli/arguments.h"
#include "cli/plan/planned_images.h"
#include "cli/train/setup.h"
#include "client/reshard_budget.h"
#include "core/config/checks/exported_file.h"

namespace fsdp2::cli {

namespace {

// The run as a plan takes it: a model's config.json is enough, and nothing is on a device.
TrainOptions planned_run(const PlanOptions& options) {
  TrainOptions run = options.run;
  if (!config::is_exported_file(run.model)) {
    run.model_config = config_path(std::exchange(run.model, ""));
  }
  run.device = "meta";
  run.cpu_offload = false;  // shards of a CPU's ranks are in the host's memory anyway
  return run;
}

void join_fake_job(const PlanOptions& options, Mesh* out) {
  fsdp2_mesh_options mesh = FSDP2_MESH_OPTIONS_INIT;
  mesh.backend = FSDP2_BACKEND_FAKE;
  mesh.device_type = "meta";
  mesh.world_size = static_cast<int32_t>(options.run.world_size);
  mesh.rank = options.rank;
  check(fsdp2_mesh_create(&mesh, out->out()));
}

}  // namespace

PlannedModel::PlannedModel(const PlanOptions& options) : options_(options) {
  const TrainOptions run = planned_run(options);
  make_model(run, &module_, "", "--model");
  Mesh job;
  join_fake_job(options, &job);
  lay_out_mesh(run, job.get(), &mesh_);
  shard_model(run, module_.get(), mesh_.get(), &shard_);
  make_optimizer(run, shard_.get(), &optimizer_);
  make_step(run, shard_.get(), optimizer_.get(), &step_);
  if (run.reshard_budget_gb > 0) {
    keep_gathered_by_budget();
  }
}

// What rank 0 chooses, all ranks take.
void PlannedModel::keep_gathered_by_budget() const {
  const auto bytes = static_cast<int64_t>(options_.run.reshard_budget_gb * kGigabyte);
  if (options_.rank == 0) {
    keep_gathered_within(bytes);
    return;
  }
  PlanOptions of_rank0 = options_;
  of_rank0.rank = 0;
  of_rank0.run.reshard_budget_gb = 0;
  keep_gathered(PlannedModel(of_rank0).keep_gathered_within(bytes), shard_);
}

fsdp2_plan_options PlannedModel::plan_options() const {
  fsdp2_plan_options plan = FSDP2_PLAN_OPTIONS_INIT;
  plan.optimizer_states = 0;
  plan.optimizer_bytes =
      info_of<fsdp2_optimizer_info>(fsdp2_optimizer_get_info, optimizer_.get()).n_full_bytes;
  plan.rows = options_.run.micro_batch;
  plan.sequence_length =
      options_.run.seq_len > 0
          ? options_.run.seq_len
          : info_of<fsdp2_module_info>(fsdp2_module_get_info, module_.get()).max_positions;
  return plan;
}

std::string PlannedModel::describe() const {
  const fsdp2_plan_options plan = plan_options();
  return text_of(fsdp2_plan_describe, shard_.get(), &plan);
}

client::PlannedStep PlannedModel::step() const {
  const TrainOptions& run = options_.run;
  client::PlannedStep step =
      client::planned_step(run.micro_batch, run.seq_len, run.grad_accum, plan_options());
  if (options_.images > 0) {
    add_images(options_, &step);
  }
  return step;
}

fsdp2_plan_memory PlannedModel::step_memory() const { return memory_of(shard_, step()); }

int64_t PlannedModel::gathers() const {
  return info_of<fsdp2_plan_info>(fsdp2_plan_get_info, shard_.get(), nullptr).all_gathers;
}

client::ReshardChoice PlannedModel::keep_gathered_within(int64_t bytes) const {
  return choose_reshard(shard_, step(), bytes);
}

}  // namespace fsdp2::cli
