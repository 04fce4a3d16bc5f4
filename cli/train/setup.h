// Makes the objects of a run from its options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/library.h"
#include "cli/train/flags/options.h"

namespace fsdp2::cli {

// This rank's number in the launcher's environment; "" if it has none.
std::string rank_in_environment();

// That number for messages, also before there is a mesh; "" if the launcher puts it before every
// line.
std::string rank_to_show();

void set_up_process(const TrainOptions& options);

// Collective. All ranks of the job, which have the same plan: otherwise this is a Failure on all of
// them, which names the first key that differs, with its values and where they come from.
void join_job(const config::Plan& plan, Mesh* out);
// Collective. The mesh that the strategy asks for.
void lay_out_mesh(const TrainOptions& options, const Mesh& job, Mesh* out);
// overrides_origin: where --config-overrides comes from, for what is wrong with them. config_flag:
// what names options.model_config in messages.
void make_model(const TrainOptions& options, Module* out, const std::string& overrides_origin = "",
                const char* config_flag = "--model-config");
// Collective. The parameters get no values yet.
void shard_model(const TrainOptions& options, const Module& module, const Mesh& mesh, Shard* out);
// The root first, whose name is empty.
std::vector<std::string> unit_names(const Shard& shard);
// Whether the sharded model takes the batches of the run. Throws UsageError, the same on all ranks.
void check_batch(const TrainOptions& options, int64_t data_ranks, const Module& module);
void make_optimizer(const TrainOptions& options, const Shard& shard, Optimizer* out);
// Collective.
void open_data(const TrainOptions& options, const Mesh& mesh, int64_t vocab_size, Loader* out);
// Collective.
void make_step(const TrainOptions& options, const Shard& shard, const Optimizer& optimizer,
               Step* out);

}  // namespace fsdp2::cli
