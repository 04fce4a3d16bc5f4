#include "cli/train/report/memory_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "cli/train/report/device_memory.h"
#include "cli/train/report/memory.h"

namespace fsdp2::cli {

namespace {

using Line = nlohmann::ordered_json;

size_t count_of(fsdp2_status (*count)(fsdp2_shard, size_t*), const Shard& shard) {
  size_t n = 0;
  check(count(shard.get(), &n));
  return n;
}

int64_t bytes_of(fsdp2_tensor tensor) {
  return info_of<fsdp2_tensor_info>(fsdp2_tensor_get_info, tensor).n_bytes;
}

std::string megabytes(int64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", static_cast<double>(bytes) / 1e6);
  return text.data();
}

std::string row(const std::string& name, size_t width, const std::vector<std::string>& cells) {
  constexpr size_t kCell = 12;
  std::string text = "  " + name + std::string(width - std::min(width, name.size()), ' ');
  for (const std::string& cell : cells) {
    text += std::string(kCell - std::min(kCell, cell.size()), ' ') + cell;
  }
  return text + "\n";
}

}  // namespace

// Runs inside the library's backward: of each micro batch that reduces gradients.
fsdp2_status MemoryReport::count_gradient(const fsdp2_gradient_info* info, fsdp2_tensor gradient,
                                          void* user_data) {
  auto* const report = static_cast<MemoryReport*>(user_data);
  fsdp2_tensor_info tensor{};
  tensor.struct_size = sizeof(tensor);
  const fsdp2_status status = fsdp2_tensor_get_info(gradient, &tensor);
  const auto unit = static_cast<size_t>(info->unit_index);
  const auto parameter = static_cast<size_t>(info->parameter_index);
  if (status == FSDP2_OK && unit < report->units_.size() && parameter < report->has_come_.size() &&
      !report->has_come_[parameter]) {
    report->has_come_[parameter] = true;
    report->units_[unit].gradients += tensor.n_bytes;
  }
  return status;
}

void MemoryReport::before_step() {
  count_units();
  check(fsdp2_shard_reset_stats(shard_.get()));
  check(fsdp2_shard_set_gradient_ready(shard_.get(), nullptr, 1, count_gradient, this, nullptr));
  give_back_kept_memory();
  const auto device = memory_of_device(mesh_);
  held_before_ = device ? device->allocated_bytes : begin_peak_rss();
}

void MemoryReport::after_step(int64_t step) {
  step_ = step;
  const auto device = memory_of_device(mesh_);
  const int64_t peak = device ? device->peak_allocated_bytes : peak_rss_since_begin();
  peak_ = std::max(peak, held_before_);
  check(fsdp2_shard_set_gradient_ready(shard_.get(), nullptr, 1, nullptr, nullptr, nullptr));
  peak_gathered_ =
      info_of<fsdp2_shard_stats>(fsdp2_shard_get_stats, shard_.get()).peak_unsharded_bytes;
  count_optimizer();
  fsdp2_plan_options options = FSDP2_PLAN_OPTIONS_INIT;
  options.optimizer_states = 0;
  options.optimizer_bytes =
      info_of<fsdp2_optimizer_info>(fsdp2_optimizer_get_info, optimizer_.get()).n_full_bytes;
  plan_ = info_of<fsdp2_plan_info>(fsdp2_plan_get_info, shard_.get(), &options);
}

// So that only what is in use counts as held between steps.
void MemoryReport::give_back_kept_memory() const {
  if (settings_.keeps_memory) {
    check(fsdp2_runtime_keep_memory(0));
    check(fsdp2_runtime_keep_memory(1));
  }
}

void MemoryReport::count_units() {
  has_come_.assign(count_of(fsdp2_shard_get_parameter_count, shard_), false);
  units_.clear();
  for (size_t i = 0; i < count_of(fsdp2_shard_get_unit_count, shard_); ++i) {
    const auto info = info_of<fsdp2_unit_info>(fsdp2_shard_get_unit_info, shard_.get(), i);
    units_.push_back({text_of(fsdp2_shard_get_unit_name, shard_.get(), i), info.sharded_bytes, 0, 0,
                      info.unsharded_bytes});
  }
}

void MemoryReport::count_optimizer() {
  for (size_t i = 0; i < count_of(fsdp2_shard_get_parameter_count, shard_); ++i) {
    const auto info =
        info_of<fsdp2_parameter_info>(fsdp2_shard_get_parameter_info, shard_.get(), i);
    for (const char* name : {"exp_avg", "exp_avg_sq", "step", "momentum_buffer"}) {
      Tensor state;
      const fsdp2_status status =
          fsdp2_optimizer_get_state(optimizer_.get(), i, name, FSDP2_PARAMETER_LOCAL, state.out());
      if (status != FSDP2_E_NOT_FOUND) {
        check(status);
        units_[static_cast<size_t>(info.unit)].optimizer += bytes_of(state.get());
      }
    }
  }
}

int64_t MemoryReport::sum(int64_t UnitMemory::* kind) const {
  int64_t total = 0;
  for (const UnitMemory& unit : units_) {
    total += unit.*kind;
  }
  return total;
}

// The most that there are.
int64_t MemoryReport::gradients_at_once() const {
  if (!settings_.frees_gradients) {
    return sum(&UnitMemory::gradients);
  }
  int64_t most = 0;
  for (const UnitMemory& unit : units_) {
    most = std::max(most, unit.gradients);
  }
  return most;
}

Line MemoryReport::line() const {
  Line units = Line::array();
  for (const UnitMemory& unit : units_) {
    units.push_back({{"name", unit.name},
                     {"parameters", unit.parameters},
                     {"gradients", unit.gradients},
                     {"optimizer", unit.optimizer},
                     {"gathered", unit.gathered}});
  }
  const int64_t gradients = gradients_at_once();
  const int64_t known = gradients + peak_gathered_;
  const Line live = {{"parameters", sum(&UnitMemory::parameters)},
                     {"gradients", gradients},
                     {"optimizer", sum(&UnitMemory::optimizer)},
                     {"gathered", peak_gathered_},
                     {"activations", std::max<int64_t>(0, peak_ - held_before_ - known)},
                     {"process", peak_}};
  const Line plan = {{"parameters", plan_.shard_bytes},
                     {"gradients", plan_.gradient_bytes},
                     {"optimizer", plan_.optimizer_bytes},
                     {"gathered", plan_.peak_unsharded_bytes}};
  return {{"event", "memory"}, {"step", step_}, {"units", units}, {"live", live}, {"plan", plan}};
}

std::string MemoryReport::table() const {
  constexpr std::array<const char*, 5> kKinds = {"parameters", "gradients", "optimizer", "gathered",
                                                 "activations"};
  const Line line = this->line();
  size_t width = 10;
  for (const UnitMemory& unit : units_) {
    width = std::max(width, unit.name.size());
  }
  std::string text = "memory of rank 0 in step " + std::to_string(step_) + ", in MB\n" +
                     row("unit", width, {kKinds.begin(), kKinds.end()});
  for (const UnitMemory& unit : units_) {
    text += row(unit.name.empty() ? "(root)" : unit.name, width,
                {megabytes(unit.parameters), megabytes(unit.gradients), megabytes(unit.optimizer),
                 megabytes(unit.gathered)});
  }
  for (const char* which : {"live", "plan"}) {
    std::vector<std::string> cells;
    for (const char* kind : kKinds) {
      const Line& found = line.at(which);
      if (found.contains(kind)) {
        cells.push_back(megabytes(found.at(kind)));
      }
    }
    text += row(which, width, cells);
  }
  return text +
         "  gathered is that of each unit in full, and below the most at a time, as are gradients; "
         "activations have\n  all else that came in the step; the whole process had " +
         megabytes(peak_) + " at most";
}

}  // namespace fsdp2::cli
