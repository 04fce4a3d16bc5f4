#include "client/objects.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

namespace fsdp2::client {

namespace {

using Numbers = std::map<std::string, int32_t>;

const Numbers kEngines = {{"auto", FSDP2_PRODUCT_ENGINE_AUTO},
                          {"mkl", FSDP2_PRODUCT_ENGINE_MKL},
                          {"onednn", FSDP2_PRODUCT_ENGINE_ONEDNN}};
const Numbers kMatmulPrecisions = {{"highest", FSDP2_MATMUL_HIGHEST},
                                   {"high", FSDP2_MATMUL_HIGH},
                                   {"medium", FSDP2_MATMUL_MEDIUM},
                                   {"high-always", FSDP2_MATMUL_HIGH_ALWAYS},
                                   {"medium-always", FSDP2_MATMUL_MEDIUM_ALWAYS}};
const Numbers kBackends = {
    {"auto", FSDP2_BACKEND_AUTO}, {"gloo", FSDP2_BACKEND_GLOO}, {"nccl", FSDP2_BACKEND_NCCL}};

}  // namespace

void set_up_process(const config::TrainOptions& options) {
  check(fsdp2_check_version(FSDP2_HEADER_VERSION));
  if (options.threads > 0) {
    check(fsdp2_runtime_set_threads(static_cast<size_t>(options.threads)));
  }
  const bool is_free = options.product_engine == "auto";
  check(fsdp2_runtime_set_product_engine(
      kEngines.at(is_free && options.deterministic ? "mkl" : options.product_engine)));
  if (options.deterministic) {
    constexpr int kKeep = 0;  // what the user has chosen
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", kKeep);
    check(fsdp2_runtime_set_deterministic(1));
  }
  check(fsdp2_runtime_set_matmul_precision(kMatmulPrecisions.at(options.matmul_precision)));
  check(fsdp2_runtime_keep_memory(options.keeps_memory() ? 1 : 0));
}

void join_job(const config::Plan& plan, Mesh* out) {
  const config::TrainOptions& options = plan.options;
  fsdp2_mesh_options mesh = FSDP2_MESH_OPTIONS_INIT;
  mesh.backend = kBackends.at(options.backend);
  mesh.timeout_ms = std::max<int64_t>(1, std::llround(options.timeout_s * 1000));
  check(fsdp2_mesh_create(&mesh, out->out()));
  check(fsdp2_mesh_agree(out->get(), "options", plan.shared_text().c_str()));
}

void lay_out_mesh(const config::TrainOptions& options, fsdp2_mesh job, Mesh* out) {
  fsdp2_mesh_options mesh = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_shard_options shard = FSDP2_SHARD_OPTIONS_INIT;
  check(fsdp2_shard_apply_strategy(options.strategy.c_str(), options.fsdp_size, &mesh, &shard));
  mesh.device_type = options.device.c_str();
  mesh.ulysses_size = options.ulysses_size;
  check(fsdp2_mesh_create_in(job, &mesh, out->out()));
}

}  // namespace fsdp2::client
