// fsdp2-plan, which `fsdp2 plan` becomes: one process plays one rank of a job of any size.
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "cli/arguments.h"
#include "cli/config_file.h"
#include "cli/exported_file.h"
#include "cli/library.h"
#include "cli/module_names.h"
#include "cli/plan/options.h"

namespace fsdp2::cli {
namespace {

const std::map<std::string, double> kOptimizerStates = {
    {"adamw", 2}, {"sgd-momentum", 1}, {"sgd", 0}};

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
}

void plan(const PlanOptions& options) {
  Module module;
  make_model(options, &module);
  Layout layout = layout_of(options);
  const Wrap wrap(ModuleNames(module).expand(options.sharding));
  wrap.set(&layout.shard);
  Mesh mesh;
  check(fsdp2_mesh_create(&layout.mesh, mesh.out()));
  Shard shard;
  check(fsdp2_shard_create(module.get(), mesh.get(), &layout.shard, shard.out()));
  fsdp2_plan_options plan_options = FSDP2_PLAN_OPTIONS_INIT;
  plan_options.optimizer_states = kOptimizerStates.at(options.optimizer);
  const auto info = info_of<fsdp2_module_info>(fsdp2_module_get_info, module.get());
  plan_options.rows = options.micro_batch;
  plan_options.sequence_length = options.seq_len > 0 ? options.seq_len : info.max_positions;
  std::cout << text_of(fsdp2_plan_describe, shard.get(), &plan_options) << std::flush;
}

int run(const std::vector<std::string>& arguments) {
  return exit_code_of("fsdp2 plan", [&] {
    PlanOptions options;
    if (parse_plan_options(arguments, &options)) {
      plan(options);
    }
    return 0;
  });
}

}  // namespace
}  // namespace fsdp2::cli

int main(int argc, char** argv) { return fsdp2::cli::run({argv + 1, argv + argc}); }
