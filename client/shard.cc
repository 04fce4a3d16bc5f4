#include "client/objects.h"

#include <string>
#include <vector>

#include "client/module_names.h"
#include "client/numbers.h"
#include "core/config/checks/require.h"

namespace fsdp2::client {

namespace {

bool wraps_embeddings(const config::TrainOptions& options, const ModuleNames& names) {
  const bool untied = options.wrap_embeddings == "untied";
  return untied ? !names.has_ties() : options.wrap_embeddings == "yes";
}

}  // namespace

void shard_model(const config::TrainOptions& options, fsdp2_module module, fsdp2_mesh mesh,
                 Shard* out) {
  const ModuleNames names(module);
  fsdp2_mesh_options joined = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_shard_options shard = FSDP2_SHARD_OPTIONS_INIT;
  check(fsdp2_shard_apply_strategy(options.strategy.c_str(), options.fsdp_size, &joined, &shard));
  shard.reshard_after_forward = reshard_number(options.sharding(), shard.reshard_after_forward);
  shard.cpu_offload = shard.no_pin_memory = options.cpu_offload ? 1 : 0;
  shard.param_dtype = dtype_number(options.param_dtype);
  shard.reduce_dtype = dtype_number(options.reduce_dtype);
  shard.output_dtype = dtype_number(options.output_dtype);
  shard.no_cast_forward_inputs = options.cast_forward_inputs == "false" ? 1 : 0;
  shard.comm_path = comm_path_number(options.comm_path);
  shard.prefetch = options.prefetch == 0 ? -1 : static_cast<int32_t>(options.prefetch);
  shard.keep_buffers = options.keep_buffers ? 1 : 0;
  shard.one_communicator = options.one_communicator ? 1 : 0;
  shard.load_from_rank0 = options.load_from_rank0 ? 1 : 0;
  shard.wrap_head = options.wrap_head ? 1 : 0;
  shard.wrap_embeddings = wraps_embeddings(options, names) ? 1 : 0;
  shard.defer_values = 1;
  const Wrap wrap(names.expand(options.sharding()));
  wrap.set(&shard);
  ShardDim dim(options.sharding(), info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, mesh).world_size);
  dim.set(&shard);
  const auto ignored =
      names.parameters_in("--ignored-modules", config::parts_of(options.ignored_modules));
  const std::vector<const char*> ignored_texts = texts_of(ignored);
  shard.ignored_names = ignored_texts.data();
  shard.n_ignored_names = ignored_texts.size();
  check(fsdp2_shard_create(module, mesh, &shard, out->out()));
}

}  // namespace fsdp2::client
