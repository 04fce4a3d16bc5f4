// fsdp2-plan, which `fsdp2 plan` becomes: one process plays one rank of a job of any size.
#include <sys/stat.h>

#include <array>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/plan/options.h"
#include "cli/train/library.h"

namespace fsdp2::cli {
namespace {

const std::map<std::string, int32_t> kDtypes = {{"none", FSDP2_DTYPE_KEEP},
                                                {"fp32", FSDP2_DTYPE_F32},
                                                {"bf16", FSDP2_DTYPE_BF16},
                                                {"fp16", FSDP2_DTYPE_F16}};
const std::map<std::string, int32_t> kCommPaths = {{"auto", FSDP2_COMM_PATH_AUTO},
                                                   {"direct", FSDP2_COMM_PATH_DIRECT},
                                                   {"packed", FSDP2_COMM_PATH_PACKED}};
const std::map<std::string, double> kOptimizerStates = {
    {"adamw", 2}, {"sgd-momentum", 1}, {"sgd", 0}};

std::string read_config(const std::string& model) {
  struct stat status{};
  const bool is_directory = stat(model.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  const std::string path = is_directory ? model + "/config.json" : model;
  std::ostringstream text;
  const std::ifstream file(path);
  if (!file || !(text << file.rdbuf())) {
    throw Failure("--model " + model + ": " + path + " cannot be read");
  }
  return text.str();
}

void make_mesh(const PlanOptions& options, Mesh* out) {
  fsdp2_mesh_options mesh = FSDP2_MESH_OPTIONS_INIT;
  mesh.backend = FSDP2_BACKEND_FAKE;
  mesh.world_size = options.world_size;
  mesh.rank = options.rank;
  const std::array<int64_t, 2> replicas = {options.world_size, 1};
  const std::array<const char*, 2> names = {"ddp", "fsdp"};
  if (options.strategy == "no_shard") {
    mesh.n_dims = 2;
    mesh.shape = replicas.data();
    mesh.names = names.data();
  } else {
    mesh.fsdp_size = options.fsdp_size;
  }
  check(fsdp2_mesh_create(&mesh, out->out()));
}

fsdp2_shard_options shard_options(const PlanOptions& options) {
  fsdp2_shard_options shard = FSDP2_SHARD_OPTIONS_INIT;
  const bool keeps = options.strategy == "shard_grad_op" ||
                     options.strategy == "hybrid_shard_zero2" ||
                     options.reshard_after_forward == "false";
  shard.reshard_after_forward = keeps ? 1 : options.reshard_after_forward == "true" ? -1 : 0;
  shard.param_dtype = kDtypes.at(options.param_dtype);
  shard.reduce_dtype = kDtypes.at(options.reduce_dtype);
  shard.comm_path = kCommPaths.at(options.comm_path);
  shard.wrap = options.wrap == "none" ? FSDP2_WRAP_NONE : FSDP2_WRAP_DEFAULT;
  shard.prefetch = options.prefetch == 0 ? -1 : options.prefetch;
  shard.defer_values = 1;
  return shard;
}

void plan(const PlanOptions& options) {
  fsdp2_module_options module_options = FSDP2_MODULE_OPTIONS_INIT;
  module_options.dtype = kDtypes.at(options.dtype);
  Module module;
  check(
      fsdp2_module_from_config(read_config(options.model).c_str(), &module_options, module.out()));
  Mesh mesh;
  make_mesh(options, &mesh);
  const fsdp2_shard_options how = shard_options(options);
  Shard shard;
  check(fsdp2_shard_create(module.get(), mesh.get(), &how, shard.out()));
  fsdp2_plan_options plan_options = FSDP2_PLAN_OPTIONS_INIT;
  plan_options.optimizer_states = kOptimizerStates.at(options.optimizer);
  std::cout << text_of([&](char* buf, size_t cap, size_t* needed) {
    return fsdp2_plan_describe(shard.get(), &plan_options, buf, cap, needed);
  }) << std::flush;
}

int run(const std::vector<std::string>& arguments) {
  try {
    PlanOptions options;
    if (parse_plan_options(arguments, &options)) {
      plan(options);
    }
    return 0;
  } catch (const UsageError& error) {
    std::cerr << "fsdp2 plan: " << error.what() << std::endl;
    return kUsageExitCode;
  } catch (const std::exception& error) {
    std::cerr << "fsdp2 plan: " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace
}  // namespace fsdp2::cli

int main(int argc, char** argv) { return fsdp2::cli::run({argv + 1, argv + argc}); }
