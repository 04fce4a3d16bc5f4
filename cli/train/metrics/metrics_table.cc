#include "cli/train/metrics/metrics_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <string>

#include "cli/train/metrics/metrics.h"

namespace fsdp2::cli {

namespace {

constexpr std::array kStepColumns = {"step",
                                     "loss",
                                     "loss_over_micro_batches",
                                     "loss_over_labels",
                                     "grad_norm",
                                     "grad_norm_fp64",
                                     "loss_scale",
                                     "applied",
                                     "lr",
                                     "step_time_s",
                                     "tokens_per_s",
                                     "data_wait_s",
                                     "mfu",
                                     "rss_bytes"};
constexpr char kEvaluationColumn[] = "eval_loss";  // its line's "loss"

std::string heading() {
  std::string text;
  for (const char* column : kStepColumns) {
    text += std::string(column) + ",";
  }
  return text + kEvaluationColumn;
}

std::optional<int64_t> step_of_row(const std::string& row) {
  constexpr size_t kMostDigits = 18;
  if (row == heading()) {
    return kBeforeAllSteps;
  }
  const std::string step = row.substr(0, row.find(','));
  const bool is_number =
      !step.empty() && step.size() <= kMostDigits &&
      std::all_of(step.begin(), step.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!is_number) {
    return std::nullopt;
  }
  const bool is_evaluation = row.compare(step.size(), 2, ",,") == 0;  // a step has a loss
  // An evaluation is made before the next step, and after a resume.
  return std::stoll(step) + (is_evaluation ? 1 : 0);
}

// JSON has no word for what is not finite.
std::string cell(const nlohmann::ordered_json& value) {
  const bool is_finite = !value.is_number_float() || std::isfinite(value.get<double>());
  return is_finite ? value.dump() : std::to_string(printable(value.get<double>()));
}

}  // namespace

MetricsTable::MetricsTable(const std::string& path, int64_t next_step)
    : file_("--metrics-csv", path, next_step, step_of_row) {}

void MetricsTable::write(const nlohmann::ordered_json& line) {
  const bool is_evaluation = line.at("event") == "evaluation";
  if (!is_evaluation && line.at("event") != "step") {
    return;
  }
  if (file_.is_empty()) {
    file_.add(heading());
  }
  std::string row;
  for (const std::string column : kStepColumns) {
    const bool has_it = line.contains(column) && (!is_evaluation || column == "step");
    row += (has_it ? cell(line.at(column)) : "") + ",";
  }
  file_.add(row + (is_evaluation ? cell(line.at("loss")) : ""));
}

}  // namespace fsdp2::cli
