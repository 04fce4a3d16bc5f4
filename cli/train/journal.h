// What a run tells: its JSON lines to --metrics and their like, and to people how far it is. Rank 0
// tells it, and the same calls do nothing on the others.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/library.h"
#include "cli/train/metrics/reports.h"
#include "cli/train/prepared_run.h"
#include "cli/train/report/progress.h"
#include "cli/train/sample.h"

namespace fsdp2::cli {

class Journal {
 public:
  // Holds the files for this run alone. Throws Failure where another run of the same job has them.
  explicit Journal(const PreparedRun& run);

  // Says what is about to run. The inputs are sound, and nothing has been written yet.
  void introduce();
  // A line for people; nothing if it is empty.
  void say(const std::string& line);
  // A JSON line. Throws Failure.
  void write(const nlohmann::ordered_json& line);
  // Both, for a step; `data_wait` of its seconds were spent until its batch was there.
  void tell_step(const fsdp2_step_result& result, double seconds, double data_wait);
  // The text of a sample is for people, too. If standard output carries JSON lines, the text goes
  // to standard error.
  void tell_sample(const Sample& sample);

 private:
  const PreparedRun& run_;
  std::optional<Reports> reports_;
  std::optional<Progress> progress_;
};

}  // namespace fsdp2::cli
