#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/plan/step_plan.h"

namespace fsdp2::plan {

namespace {

// "1.50 GB"; powers of ten, as links and disks are sold.
std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) {
    value /= 1000;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string name_of(const UnitPlan& unit) { return unit.name.empty() ? "(root)" : unit.name; }

std::string run_name(const StepPlan& plan, size_t first, size_t last) {
  return first == last
             ? name_of(plan.units[first])
             : fmt::format("{} to {}", name_of(plan.units[first]), name_of(plan.units[last]));
}

bool alike(const UnitPlan& a, const UnitPlan& b) {
  return !a.name.empty() && !b.name.empty() && a.parameters == b.parameters && a.numel == b.numel &&
         a.dtypes == b.dtypes && a.shard_dims == b.shard_dims &&
         a.gathered_bytes == b.gathered_bytes && a.shard_bytes == b.shard_bytes &&
         a.ranks == b.ranks && a.gather == b.gather && a.reduce == b.reduce &&
         a.replica_reduce == b.replica_reduce;
}

std::string table_of(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = fmt::format("  {:<{}}", row[0], row.size() == 1 ? 0 : widths[0]);
    for (size_t i = 1; i < row.size(); ++i) {
      line += fmt::format("  {:>{}}", row[i], widths[i]);
    }
    text += line + "\n";
  }
  return text;
}

std::string units_text(const StepPlan& plan) {
  std::vector<std::vector<std::string>> rows{{"unit", "units", "parameters", "elements", "gathered",
                                              "shard", "shard dim", "ranks", "dtype", "all-gather",
                                              "reduce-scatter", "all-reduce"}};
  for (size_t first = 0; first < plan.units.size();) {
    const UnitPlan& unit = plan.units[first];
    size_t last = first;
    while (last + 1 < plan.units.size() && alike(unit, plan.units[last + 1])) {
      ++last;
    }
    rows.push_back({run_name(plan, first, last), std::to_string(last - first + 1),
                    std::to_string(unit.parameters), std::to_string(unit.numel),
                    bytes_text(unit.gathered_bytes), bytes_text(unit.shard_bytes), unit.shard_dims,
                    unit.ranks, unit.dtypes, bytes_text(unit.gather.bytes),
                    bytes_text(unit.reduce.bytes), bytes_text(unit.replica_reduce.bytes)});
    first = last + 1;
  }
  return "units (each; bytes received once)\n" + table_of(rows);
}

std::string memory_text(const StepPlan& plan) {
  std::vector<std::vector<std::string>> rows{
      {"shards", bytes_text(plan.shards)},
      {"gradients", bytes_text(plan.gradients)},
      {"optimizer", bytes_text(plan.optimizer)},
      {"gathered, at most", bytes_text(plan.peak_gathered)},
      {"gradients not reduced yet, at most", bytes_text(plan.peak_whole_gradients)}};
  if (plan.kept > 0) {
    rows.push_back({"kept buffers, with what is gathered", bytes_text(plan.kept)});
    rows.push_back({"other communication buffers, at most", bytes_text(plan.peak_buffers)});
  } else {
    rows.push_back({"communication buffers, at most", bytes_text(plan.peak_buffers)});
  }
  rows.push_back({"together, at most", bytes_text(plan.total())});
  return "memory of this rank, without activations\n" + table_of(rows);
}

std::vector<std::string> traffic_row(const char* name, const Traffic& traffic) {
  return {name, std::to_string(traffic.units), std::to_string(traffic.calls),
          bytes_text(traffic.bytes), std::to_string(traffic.bytes)};
}

std::string traffic_text(const StepPlan& plan) {
  std::vector<std::vector<std::string>> rows{
      {"collective", "of units", "calls", "bytes", "exactly"},
      traffic_row("all-gather", plan.all_gather),
      traffic_row("reduce-scatter", plan.reduce_scatter),
      traffic_row("all-reduce", plan.all_reduce)};
  if (plan.sequence_ranks > 1) {
    rows.push_back(traffic_row("all-to-all", plan.all_to_all));
  }
  return "one step, received by this rank\n" + table_of(rows);
}

// Null: waits, and what moves and frees nothing, go without saying.
const char* verb_of(fsdp::ActionKind kind) {
  switch (kind) {
    case fsdp::ActionKind::kGather:
      return "gather";
    case fsdp::ActionKind::kFree:
      return "free";
    case fsdp::ActionKind::kSlice:
      return "keep a slice of";
    case fsdp::ActionKind::kReduce:
      return "reduce";
    case fsdp::ActionKind::kWait:
    case fsdp::ActionKind::kFinishReduce:
    case fsdp::ActionKind::kAccumulate:
    case fsdp::ActionKind::kLeave:
      break;
  }
  return nullptr;
}

// Relative to the turn's own unit, so that turns can be compared.
std::string actions_text(const StepPlan& plan, const Turn& turn) {
  std::string text;
  for (const fsdp::Action& action : turn.actions) {
    const char* const verb = verb_of(action.kind);
    if (verb == nullptr) {
      continue;
    }
    const auto distance = static_cast<int64_t>(action.unit) - static_cast<int64_t>(turn.unit);
    const std::string whom = distance == 0 ? "it"
                             : plan.units[action.unit].name.empty()
                                 ? "(root)"
                                 : fmt::format("unit {:+}", distance);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", verb, whom);
  }
  return text.empty() ? "nothing" : text;
}

std::string turns_text(const StepPlan& plan, const char* phase, const std::vector<Turn>& turns) {
  std::vector<std::vector<std::string>> rows;
  for (size_t first = 0; first < turns.size();) {
    const std::string actions = actions_text(plan, turns[first]);
    size_t last = first;
    while (last + 1 < turns.size() && !plan.units[turns[first].unit].name.empty() &&
           actions_text(plan, turns[last + 1]) == actions) {
      ++last;
    }
    rows.push_back({run_name(plan, turns[first].unit, turns[last].unit)});
    rows.back()[0] += ": " + actions;
    first = last + 1;
  }
  return rows.empty() ? std::string() : std::string(phase) + "\n" + table_of(rows);
}

}  // namespace

std::string to_text(const StepPlan& plan) {
  int64_t numel = 0;
  for (const UnitPlan& unit : plan.units) {
    numel += unit.numel;
  }
  return fmt::format("{} elements over {}, {} unit{} gathered ahead\n\n", numel, plan.mesh,
                     plan.prefetch, plan.prefetch == 1 ? "" : "s") +
         units_text(plan) + "\n" + memory_text(plan) + "\n" + traffic_text(plan) + "\n" +
         turns_text(plan, "forward", plan.forward) + turns_text(plan, "backward", plan.backward);
}

}  // namespace fsdp2::plan
