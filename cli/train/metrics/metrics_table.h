// The numbers of a run as a table in CSV: a row for each step, and one for each evaluation.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/train/metrics/line_file.h"

namespace fsdp2::cli {

class MetricsTable {
 public:
  // The rows that the file has of steps before `next_step` stay; the others go when the first
  // row is written. Throws Failure.
  MetricsTable(const std::string& path, int64_t next_step);

  // Adds the row of a line of a step or an evaluation, and nothing of other lines. All tables have
  // the same columns; what a line does not have is empty, and a number that is not finite is nan,
  // inf or -inf. Throws Failure.
  void write(const nlohmann::ordered_json& line);

 private:
  LineFile file_;
};

}  // namespace fsdp2::cli
