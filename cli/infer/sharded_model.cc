#include "cli/infer/sharded_model.h"

#include <cstddef>
#include <exception>
#include <iostream>

#include "cli/arguments.h"
#include "cli/train/setup.h"
#include "client/param_dtype.h"
#include "core/config/checks/places.h"
#include "core/config/checks/sharding_checks.h"
#include "core/config/key_table.h"
#include "core/config/resolve.h"

namespace fsdp2::cli {

void ShardedModel::use(const ModelOptions& options, const std::string& shared,
                       const std::function<void(const ShardedModel&)>& work) {
  ShardedModel model;
  try {
    model.prepare(options, shared);
    work(model);
  } catch (const UsageError&) {  // the same on all ranks
    throw;
  } catch (const std::exception& error) {
    if (!model.mesh_.is_null()) {
      static_cast<void>(fsdp2_mesh_fail(model.mesh_.get(), error.what()) == FSDP2_OK);
    }
    throw;
  }
}

void ShardedModel::prepare(const ModelOptions& options, const std::string& shared) {
  config::Plan plan = options.plan;
  const config::TrainOptions& run = plan.options;
  set_up_process(run);
  Mesh job;
  join_job(plan, &job);
  const std::string text = "--checkpoint=" + options.checkpoint + "\n" + shared;
  check(fsdp2_mesh_agree(job.get(), "options", text.c_str()));
  const int64_t ranks = info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, job.get()).world_size;
  config::check_world(plan, ranks);
  config::with_places(plan, [&] { check_sharding_for_world(run.sharding(), ranks); });
  lay_out_mesh(run, job.get(), &mesh_);
  job_ = info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, mesh_.get());
  const size_t known_notes = plan.notes.size();
  client::settle_param_dtype(&plan, mesh_.get());
  if (job_.rank == 0) {
    tell_notes(plan, known_notes, [](const std::string& note) { std::cerr << note << std::endl; });
  }
  sequence_ranks_ = run.ulysses_size;
  make_model(run, &module_, plan.origin_of("config-overrides"));
  vocab_size_ = info_of<fsdp2_module_info>(fsdp2_module_get_info, module_.get()).vocab_size;
  shard_model(run, module_.get(), mesh_.get(), &shard_);
  if (options.checkpoint.empty()) {
    check(fsdp2_shard_load_values(shard_.get()));
  } else {
    fsdp2_load_options load = FSDP2_LOAD_OPTIONS_INIT;
    load.from_rank0 = run.load_from_rank0 ? 1 : 0;
    check(fsdp2_checkpoint_load(shard_.get(), {0}, {0}, {0}, options.checkpoint.c_str(), &load));
  }
  check(fsdp2_module_train(module_.get(), 0));
}

// Gathers along the mesh's last dim first, so that ranks come in order. The last dim is that of the
// ranks that share sequences, if there are some.
Tensor ShardedModel::gather_flat(const Tensor& own) const {
  const auto info = info_of<fsdp2_tensor_info>(fsdp2_tensor_get_info, own.get());
  std::vector<char> bytes(static_cast<size_t>(info.n_bytes));
  check(fsdp2_tensor_read(own.get(), bytes.data(), bytes.size()));
  int64_t numel = 1;
  for (int32_t dim = 0; dim < info.n_dims; ++dim) {
    numel *= info.shape[dim];
  }
  Tensor flat;
  check(fsdp2_tensor_from_buffer(bytes.data(), bytes.size(), info.dtype, &numel, 1, flat.out()));
  const int32_t n_dims = job_.n_dims - (sequence_ranks_ > 1 ? 1 : 0);
  for (int32_t dim = n_dims - 1; dim >= 0; --dim) {
    Tensor gathered;
    check(fsdp2_mesh_all_gather(mesh_.get(), dim, flat.get(), 0, gathered.out()));
    *flat.out() = gathered.release();
  }
  return flat;
}

}  // namespace fsdp2::cli
