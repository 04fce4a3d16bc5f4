#include "cli/train/report/overview.h"

#include <cstddef>
#include <cstdint>

#include "cli/machine/size_text.h"
#include "cli/train/report/progress.h"

namespace fsdp2::cli {

namespace {

constexpr size_t kMostRuns = 6;    // of units that are alike
constexpr size_t kMostFrozen = 3;  // that are named

std::string elements(int64_t n) { return count_text(static_cast<double>(n)); }

// Units that come one after the other and are as large as each other.
struct UnitRun {
  std::string first, last;
  int64_t units = 0;
  int64_t numel = 0;  // of each
};

std::vector<UnitRun> unit_runs(const Shard& shard) {
  size_t count = 0;
  check(fsdp2_shard_get_unit_count(shard.get(), &count));
  std::vector<UnitRun> runs;
  for (size_t i = 0; i < count; ++i) {
    const auto info = info_of<fsdp2_unit_info>(fsdp2_shard_get_unit_info, shard.get(), i);
    const std::string name =
        info.is_root != 0 ? "(root)" : text_of(fsdp2_shard_get_unit_name, shard.get(), i);
    // The root stands by itself: it is no block, though it may be as large as one.
    if (runs.size() < 2 || runs.back().numel != info.numel) {
      runs.push_back({name, name, 0, info.numel});
    }
    runs.back().last = name;
    ++runs.back().units;
  }
  return runs;
}

std::string units_line(const Shard& shard) {
  const std::vector<UnitRun> runs = unit_runs(shard);
  int64_t units = 0;
  std::string text;
  for (size_t i = 0; i < runs.size(); ++i) {
    units += runs[i].units;
    if (i < kMostRuns) {
      const std::string names =
          runs[i].units == 1 ? runs[i].first : runs[i].first + " to " + runs[i].last;
      text += (i == 0 ? "" : ", ") + names + " of " + elements(runs[i].numel);
    }
  }
  if (runs.size() > kMostRuns) {
    text += " and others; fsdp2 plan shows them all";
  }
  return std::to_string(units) + (units == 1 ? " unit: " : " units: ") + text;
}

std::string memory_line(const Shard& shard, const Optimizer& optimizer) {
  fsdp2_plan_options options = FSDP2_PLAN_OPTIONS_INIT;
  options.optimizer_states = 0;
  options.optimizer_bytes =
      info_of<fsdp2_optimizer_info>(fsdp2_optimizer_get_info, optimizer.get()).n_full_bytes;
  fsdp2_plan_info plan{};
  plan.struct_size = sizeof(plan);
  const fsdp2_status status = fsdp2_plan_get_info(shard.get(), &options, &plan);
  if (status == FSDP2_E_UNSUPPORTED) {
    return "";
  }
  check(status);
  const auto size = [](int64_t bytes) { return size_text(static_cast<double>(bytes)); };
  const int64_t gathered = plan.peak_unsharded_bytes + plan.peak_unreduced_gradient_bytes;
  return "planned memory of a rank, without activations: " +
         size(plan.shard_bytes + plan.gradient_bytes + plan.optimizer_bytes + gathered) +
         " (shards " + size(plan.shard_bytes) + ", their gradients " + size(plan.gradient_bytes) +
         ", optimizer " + size(plan.optimizer_bytes) + ", gathered " + size(gathered) + ")";
}

std::string frozen_line(const Shard& shard) {
  size_t count = 0, frozen = 0;
  int64_t numel = 0;
  std::string names;
  check(fsdp2_shard_get_parameter_count(shard.get(), &count));
  for (size_t i = 0; i < count; ++i) {
    const auto info = info_of<fsdp2_parameter_info>(fsdp2_shard_get_parameter_info, shard.get(), i);
    if (info.requires_grad != 0) {
      continue;
    }
    int64_t own = 1;
    for (int32_t dim = 0; dim < info.n_dims; ++dim) {
      own *= info.shape[dim];
    }
    numel += own;
    if (frozen < kMostFrozen) {
      names += (frozen == 0 ? "" : ", ") +
               text_of(fsdp2_shard_get_parameter_name, shard.get(), i, size_t{0});
    }
    ++frozen;
  }
  if (frozen == 0) {
    return "";
  }
  const std::string others =
      frozen > kMostFrozen ? " and " + std::to_string(frozen - kMostFrozen) + " others" : "";
  return "frozen: " + std::to_string(frozen) + " of " + std::to_string(count) + " parameters, " +
         elements(numel) + " elements: " + names + others;
}

}  // namespace

std::vector<std::string> overview(const Shard& shard, const Optimizer& optimizer) {
  std::vector<std::string> lines;
  for (const std::string& line :
       {units_line(shard), memory_line(shard, optimizer), frozen_line(shard)}) {
    if (!line.empty()) {
      lines.push_back(line);
    }
  }
  return lines;
}

}  // namespace fsdp2::cli
