#include "cli/train/reshard_budget.h"

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/train/setup.h"

namespace fsdp2::cli {

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

void set_up(const TrainOptions& options, int64_t world_size, Rehearsal* out) {
  make_model(options, &out->module);
  fsdp2_mesh_options mesh = FSDP2_MESH_OPTIONS_INIT;
  mesh.backend = FSDP2_BACKEND_FAKE;
  mesh.world_size = static_cast<int32_t>(world_size);
  mesh.device_type = "meta";
  Mesh job;
  check(fsdp2_mesh_create(&mesh, job.out()));
  TrainOptions on_meta = options;
  on_meta.device = "meta";
  lay_out_mesh(on_meta, job, &out->mesh);
  shard_model(options, out->module, out->mesh, &out->shard);
  make_optimizer(options, out->shard, &out->optimizer);
  make_step(options, out->shard, out->optimizer, &out->step);
}

int64_t peak_bytes(const TrainOptions& options, int64_t data_ranks, const Rehearsal& rehearsal) {
  const std::array<int64_t, 2> shape = {options.global_batch / (data_ranks * options.grad_accum),
                                        options.seq_len};
  const std::vector<int64_t> zeros(static_cast<size_t>(shape[0] * shape[1]));
  Tensor tokens;
  check(fsdp2_tensor_from_buffer(zeros.data(), zeros.size() * sizeof(int64_t), FSDP2_DTYPE_I64,
                                 shape.data(), shape.size(), tokens.out()));
  const std::array<fsdp2_tensor, 2> inputs = {tokens.get(), tokens.get()};
  fsdp2_plan_options plan = FSDP2_PLAN_OPTIONS_INIT;
  plan.optimizer_states = 0;
  plan.optimizer_bytes =
      info_of<fsdp2_optimizer_info>(fsdp2_optimizer_get_info, rehearsal.optimizer.get())
          .n_full_bytes;
  fsdp2_plan_memory memory{};
  memory.struct_size = sizeof(memory);
  check(fsdp2_plan_get_memory(rehearsal.shard.get(), inputs.data(), inputs.size(),
                              static_cast<size_t>(options.grad_accum), &plan, &memory));
  return memory.peak_bytes;
}

std::string gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g GB", bytes / kGigabyte);
  return text;
}

}  // namespace

ReshardChoice choose_within_budget(const TrainOptions& options, int64_t world_size,
                                   int64_t data_ranks) {
  Rehearsal rehearsal;
  set_up(options, world_size, &rehearsal);
  const double budget = options.reshard_budget_gb * kGigabyte;
  const ReshardChoice choice = choose_reshard(rehearsal.shard, static_cast<int64_t>(budget), [&] {
    return peak_bytes(options, data_ranks, rehearsal);
  });
  if (static_cast<double>(choice.peak_bytes) > budget) {
    throw Failure("--reshard-budget-gb: a step takes " +
                  gigabytes(static_cast<double>(choice.peak_bytes)) +
                  " though all units reshard after forward, expected at most " + gigabytes(budget) +
                  "; fsdp2 plan --memory-gb says what takes less");
  }
  return choice;
}

void keep_gathered(const ReshardChoice& choice, const Shard& shard) {
  for (const std::string& name : choice.kept) {
    check(fsdp2_shard_set_reshard_after_forward(shard.get(), name.c_str(), 0, 0));
  }
}

}  // namespace fsdp2::cli
