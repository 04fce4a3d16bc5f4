#include "cli/train/report/summary.h"

#include <algorithm>
#include <string>

#include "cli/train/metrics/metrics.h"
#include "cli/train/report/device_memory.h"
#include "cli/train/report/memory.h"

namespace fsdp2::cli {

namespace {

// Collective. The number of each rank, by rank.
std::vector<int64_t> gather(const Mesh& mesh, const fsdp2_mesh_info& info, int64_t own) {
  std::vector<double> values(static_cast<size_t>(info.world_size));
  values[static_cast<size_t>(info.rank)] = static_cast<double>(own);
  check(fsdp2_mesh_all_reduce(mesh.get(), values.data(), values.size(), FSDP2_REDUCE_SUM));
  return {values.begin(), values.end()};
}

int64_t local_parameters(const Shard& shard) {
  size_t count = 0;
  check(fsdp2_shard_get_parameter_count(shard.get(), &count));
  int64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto info = info_of<fsdp2_parameter_info>(fsdp2_shard_get_parameter_info, shard.get(), i);
    int64_t numel = 1;
    for (int32_t dim = 0; dim < info.n_dims; ++dim) {
      numel *= info.local_shape[dim];
    }
    total += numel;
  }
  return total;
}

// Whether the ranks along the last of several dims do; they are of one shard group.
bool shares_sequences(const Mesh& mesh, const fsdp2_mesh_info& info) {
  return info.n_dims > 1 && text_of(fsdp2_mesh_get_dim_name, mesh.get(), info.n_dims - 1) == "cp";
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

}  // namespace

nlohmann::ordered_json summarize(const FinishedRun& run) {
  const int64_t peak = peak_rss();  // before the summary itself raises it
  const auto mesh = info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, run.mesh.get());
  const auto model = info_of<fsdp2_module_info>(fsdp2_module_get_info, run.module.get());
  const double median = median_of(run.step_seconds);
  const double speed = median > 0 ? static_cast<double>(run.tokens_a_step) / median : 0.0;
  const uint32_t version = fsdp2_version();
  const auto memory = memory_of_device(run.mesh);
  const int64_t last = mesh.shape[mesh.n_dims - 1];
  const int64_t sharers = shares_sequences(run.mesh, mesh) ? last : 1;
  nlohmann::ordered_json line = {
      {"event", "summary"},
      {"world_size", mesh.world_size},
      {"fsdp_size", sharers == 1 ? last : last * mesh.shape[mesh.n_dims - 2]},
      {"device", memory ? "cuda" : "cpu"},
      {"parameters", model.numel},
      {"local_parameters", gather(run.mesh, mesh, local_parameters(run.shard))},
      {"steps", run.steps},
      {"median_step_time_s", rounded(median, 6)},
      {"median_tokens_per_s", rounded(speed, 2)},
      {"peak_rss_bytes", gather(run.mesh, mesh, peak)},
      {"rss_before_model_bytes", gather(run.mesh, mesh, run.rss_before_model)},
      {"start_up_s", run.start_up.seconds()},
      {"libfsdp2", std::to_string(version >> 16) + "." + std::to_string(version & 0xffff)},
  };
  if (sharers > 1) {
    line["ulysses_size"] = sharers;
  }
  if (memory) {
    line["peak_device_bytes"] = gather(run.mesh, mesh, memory->peak_allocated_bytes);
    line["peak_reserved_device_bytes"] = gather(run.mesh, mesh, memory->peak_reserved_bytes);
  }
  return line;
}

}  // namespace fsdp2::cli
