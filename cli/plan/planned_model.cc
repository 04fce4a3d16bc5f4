#include "cli/plan/planned_model.h"

#include <filesystem>
#include <system_error>

#include "cli/arguments.h"
#include "cli/config_file.h"
#include "cli/create_optimizer.h"
#include "cli/exported_file.h"
#include "cli/module_names.h"

namespace fsdp2::cli {

namespace {

// --model may be the directory of a config.json.
std::string config_path(const std::string& model) {
  std::error_code error;
  return std::filesystem::is_directory(model, error) ? model + "/config.json" : model;
}

// What the options mean for the mesh and for the shard.
struct Layout {
  fsdp2_mesh_options mesh = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_shard_options shard = FSDP2_SHARD_OPTIONS_INIT;
};

Layout layout_of(const PlanOptions& options) {
  Layout layout;
  check(fsdp2_shard_apply_strategy(options.sharding.strategy.c_str(), options.sharding.fsdp_size,
                                   &layout.mesh, &layout.shard));
  layout.mesh.backend = FSDP2_BACKEND_FAKE;
  layout.mesh.device_type = "meta";
  layout.mesh.world_size = options.world_size;
  layout.mesh.rank = options.rank;
  layout.mesh.ulysses_size = options.sharding.ulysses_size;
  fsdp2_shard_options& shard = layout.shard;
  shard.reshard_after_forward = reshard_number(options.sharding, shard.reshard_after_forward);
  shard.param_dtype = dtype_number(options.param_dtype);
  shard.reduce_dtype = dtype_number(options.reduce_dtype);
  shard.comm_path = comm_path_number(options.comm_path);
  shard.prefetch = options.prefetch == 0 ? -1 : options.prefetch;
  shard.defer_values = 1;
  return layout;
}

void make_model(const PlanOptions& options, Module* out) {
  fsdp2_module_options module = FSDP2_MODULE_OPTIONS_INIT;
  module.dtype = dtype_number(options.dtype);
  if (is_exported_file(options.model)) {
    check(fsdp2_module_from_exported(options.model.c_str(), &module, out->out()));
  } else {
    module_from_config_file("--model", config_path(options.model), module, out);
  }
  if (options.activation_checkpointing) {
    check(fsdp2_module_checkpoint_activations(out->get(), nullptr, 0,
                                              static_cast<size_t>(options.recompute_every), 0));
  }
}

// What the optimizer of such a run comes to hold.
int64_t optimizer_bytes(const PlanOptions& options, const Shard& shard) {
  config::TrainOptions run;
  run.optimizer = options.optimizer;
  run.optimizer_states = options.optimizer_states;
  run.momentum = options.momentum;
  Optimizer optimizer;
  create_optimizer(run, shard, &optimizer);
  return info_of<fsdp2_optimizer_info>(fsdp2_optimizer_get_info, optimizer.get()).n_full_bytes;
}

fsdp2_plan_options plan_options(const PlanOptions& options, const Module& module,
                                const Shard& shard) {
  fsdp2_plan_options plan = FSDP2_PLAN_OPTIONS_INIT;
  plan.optimizer_states = 0;
  plan.optimizer_bytes = optimizer_bytes(options, shard);
  plan.rows = options.micro_batch;
  plan.sequence_length =
      options.seq_len > 0
          ? options.seq_len
          : info_of<fsdp2_module_info>(fsdp2_module_get_info, module.get()).max_positions;
  return plan;
}

}  // namespace

PlannedModel::PlannedModel(const PlanOptions& options) : options_(options) {
  make_model(options, &module_);
  Layout layout = layout_of(options);
  const Wrap wrap(ModuleNames(module_).expand(options.sharding));
  wrap.set(&layout.shard);
  ShardDim dim(options.sharding, options.world_size);
  dim.set(&layout.shard);
  check(fsdp2_mesh_create(&layout.mesh, mesh_.out()));
  check(fsdp2_shard_create(module_.get(), mesh_.get(), &layout.shard, shard_.out()));
}

std::string PlannedModel::describe() const {
  const fsdp2_plan_options plan = plan_options(options_, module_, shard_);
  return text_of(fsdp2_plan_describe, shard_.get(), &plan);
}

PlannedStep PlannedModel::step() const {
  return planned_step(options_.micro_batch, options_.seq_len, options_.grad_accum,
                      plan_options(options_, module_, shard_));
}

fsdp2_plan_memory PlannedModel::step_memory() const { return memory_of(shard_, step()); }

int64_t PlannedModel::gathers() const {
  return info_of<fsdp2_plan_info>(fsdp2_plan_get_info, shard_.get(), nullptr).all_gathers;
}

ReshardChoice PlannedModel::keep_gathered_within(int64_t bytes) const {
  return choose_reshard(shard_, step(), bytes);
}

}  // namespace fsdp2::cli
