#include "cli/train/metrics/reports.h"

namespace fsdp2::cli {

Reports::Reports(const TrainOptions& options, int64_t next_step)
    : metrics_(options.metrics, next_step) {
  if (!options.metrics_csv.empty()) {
    table_.emplace(options.metrics_csv, next_step);
  }
  if (!options.tensorboard.empty()) {
    events_.emplace(options.tensorboard, next_step);
  }
}

void Reports::write(const nlohmann::ordered_json& line) {
  metrics_.write(line);
  if (table_) {
    table_->write(line);
  }
  if (events_) {
    events_->write(line);
  }
}

}  // namespace fsdp2::cli
