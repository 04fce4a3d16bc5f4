// Everything that takes the lines of a run: --metrics, --metrics-csv and --tensorboard.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/train/flags/options.h"
#include "cli/train/metrics/event_file.h"
#include "cli/train/metrics/metrics.h"
#include "cli/train/metrics/metrics_table.h"

namespace fsdp2::cli {

class Reports {
 public:
  // For a run that goes on at `next_step`. Throws Failure.
  Reports(const TrainOptions& options, int64_t next_step);

  bool go_to_stdout() const { return metrics_.goes_to_stdout(); }
  // Throws Failure.
  void write(const nlohmann::ordered_json& line);

 private:
  Metrics metrics_;
  std::optional<MetricsTable> table_;
  std::optional<EventFile> events_;
};

}  // namespace fsdp2::cli
