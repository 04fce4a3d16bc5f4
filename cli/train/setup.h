// From options to the objects of a run.
#pragma once

#include <cstdint>
#include <string>

#include "cli/library.h"
#include "cli/train/options.h"

namespace fsdp2::cli {

// This rank as the launcher's environment has it, before there is a mesh; "" if it says nothing.
std::string rank_in_environment();

// FSDP2_DTYPE_ of "fp32", "bf16" or "fp16"; "none" is _KEEP.
int32_t dtype_number(const std::string& name);

void set_up_process(const TrainOptions& options);

// Collective.
void join_mesh(const TrainOptions& options, Mesh* out);
void make_model(const TrainOptions& options, Module* out);
// Collective.
void shard_model(const TrainOptions& options, const Module& module, const Mesh& mesh, Shard* out);
void make_optimizer(const TrainOptions& options, const Shard& shard, Optimizer* out);
// Collective.
void open_data(const TrainOptions& options, const Mesh& mesh, int64_t vocab_size, Loader* out);
// Collective.
void make_step(const TrainOptions& options, const Shard& shard, const Optimizer& optimizer,
               Step* out);

}  // namespace fsdp2::cli
