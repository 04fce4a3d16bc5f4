#include "client/reshard_budget.h"

#include <exception>
#include <string>

#include "client/objects.h"
#include "core/config/checks/require.h"

namespace fsdp2::client {

namespace {

constexpr double kGigabyte = 1e9;

// The run as rank 0 has it, without values.
struct Rehearsal {
  Module module;
  Mesh mesh;
  Shard shard;
  Optimizer optimizer;
  Step step;  // tells the model in how many parts its loss is computed
};

void set_up(const config::TrainOptions& options, int64_t world_size, Rehearsal* out) {
  make_model(options, &out->module);
  fsdp2_mesh_options mesh = FSDP2_MESH_OPTIONS_INIT;
  mesh.backend = FSDP2_BACKEND_FAKE;
  mesh.world_size = static_cast<int32_t>(world_size);
  mesh.device_type = "meta";
  Mesh job;
  check(fsdp2_mesh_create(&mesh, job.out()));
  config::TrainOptions on_meta = options;
  on_meta.device = "meta";
  lay_out_mesh(on_meta, job.get(), &out->mesh);
  shard_model(options, out->module.get(), out->mesh.get(), &out->shard);
  make_optimizer(options, out->shard.get(), &out->optimizer);
  make_step(options, out->shard.get(), out->optimizer.get(), &out->step);
}

PlannedStep step_of(const config::TrainOptions& options, int64_t data_ranks,
                    const Optimizer& optimizer) {
  fsdp2_plan_options plan = FSDP2_PLAN_OPTIONS_INIT;
  plan.optimizer_states = 0;
  plan.optimizer_bytes =
      info_of<fsdp2_optimizer_info>(fsdp2_optimizer_get_info, optimizer.get()).n_full_bytes;
  constexpr int64_t kMostTokens = 1 << 26;  // as fsdp2 plan
  const int64_t rows = options.global_batch / (data_ranks * options.grad_accum);
  config::require(options.seq_len <= kMostTokens / rows,
                  "--reshard-budget-gb: expected micro batches of at most " +
                      std::to_string(kMostTokens) + " tokens, found " + std::to_string(rows) +
                      " x --seq-len " + std::to_string(options.seq_len));
  return planned_step(rows, options.seq_len, options.grad_accum, plan);
}

// The choice of this rank, which plays rank 0.
ReshardChoice choose_alone(const config::TrainOptions& options, int64_t world_size,
                           int64_t data_ranks) {
  Rehearsal rehearsal;
  set_up(options, world_size, &rehearsal);
  try {
    return choose_reshard(rehearsal.shard, step_of(options, data_ranks, rehearsal.optimizer),
                          static_cast<int64_t>(options.reshard_budget_gb * kGigabyte));
  } catch (const Failure& failure) {
    if (failure.status() != FSDP2_E_OUT_OF_MEMORY) {
      throw;
    }
    throw Failure(std::string("--reshard-budget-gb: ") + failure.what() +
                      "; fsdp2 plan --memory-gb says what takes less",
                  failure.status());
  }
}

}  // namespace

ReshardChoice choose_within_budget(const config::TrainOptions& options, fsdp2_mesh mesh,
                                   int64_t data_ranks) {
  ReshardChoice choice;
  std::string text;
  std::exception_ptr error;
  try {
    const auto info = info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, mesh);
    choice = choose_alone(options, info.world_size, data_ranks);
    for (const std::string& name : choice.kept) {
      text += name + "=kept\n";
    }
  } catch (...) {
    error = std::current_exception();
    text = "plan=failed\n";
  }
  const fsdp2_status agreed =
      fsdp2_mesh_agree(mesh, "the units that --reshard-budget-gb keeps gathered", text.c_str());
  if (error) {
    std::rethrow_exception(error);
  }
  check(agreed);
  return choice;
}

void keep_gathered(const ReshardChoice& choice, const Shard& shard) {
  for (const std::string& name : choice.kept) {
    check(fsdp2_shard_set_reshard_after_forward(shard.get(), name.c_str(), 0, 0));
  }
}

}  // namespace fsdp2::client
