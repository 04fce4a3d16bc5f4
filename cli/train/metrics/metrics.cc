#include "cli/train/metrics/metrics.h"

#include <cmath>
#include <limits>
#include <optional>

namespace fsdp2::cli {

namespace {

std::optional<int64_t> step_of_json(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("event")) {
    return std::nullopt;
  }
  const auto& event = json["event"];
  if (event == "evaluation" && json.contains("step")) {
    return json.value("step", int64_t{0}) + 1;  // made before the next step, and after a resume
  }
  const bool is_of_step = event == "step" || event == "memory";
  return is_of_step ? json.value("step", kAfterAllSteps) : kAfterAllSteps;
}

}  // namespace

Metrics::Metrics(const std::string& path, int64_t next_step)
    : file_("--metrics", path, next_step, step_of_json) {}

void Metrics::write(const nlohmann::ordered_json& line) {
  // A sample may hold bytes that are not UTF-8.
  file_.add(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

double rounded(double value, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

double printable(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

}  // namespace fsdp2::cli
