// The objects of a run from its options, each by a few calls of the C ABI.
#pragma once

#include <cstdint>
#include <string>

#include "client/library.h"
#include "core/config/plan.h"

namespace fsdp2::client {

void set_up_process(const config::TrainOptions& options);

// Collective. All ranks of the job, which have the same plan: otherwise this is a Failure on all of
// them, which names the first key that differs, with its values and where they come from.
void join_job(const config::Plan& plan, Mesh* out);
// Collective. The mesh that the strategy asks for.
void lay_out_mesh(const config::TrainOptions& options, fsdp2_mesh job, Mesh* out);
// overrides_origin: where --config-overrides comes from, for what is wrong with them. config_flag:
// what names options.model_config in messages.
void make_model(const config::TrainOptions& options, Module* out,
                const std::string& overrides_origin = "",
                const char* config_flag = "--model-config");
// Collective. The parameters get no values yet.
void shard_model(const config::TrainOptions& options, fsdp2_module module, fsdp2_mesh mesh,
                 Shard* out);
void make_optimizer(const config::TrainOptions& options, fsdp2_shard shard, Optimizer* out);
// The config.json of the model, or the directory with it; "" where no file has it.
std::string config_path(const config::TrainOptions& options);
// Collective.
void open_data(const config::TrainOptions& options, fsdp2_mesh mesh, int64_t vocab_size,
               Loader* out);
// Collective.
void make_step(const config::TrainOptions& options, fsdp2_shard shard, fsdp2_optimizer optimizer,
               Step* out);

}  // namespace fsdp2::client
