// The last JSON line of a run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/library.h"
#include "cli/train/report/start_up.h"

namespace fsdp2::cli {

struct FinishedRun {
  const Mesh& mesh;
  const Module& module;
  const Shard& shard;
  int64_t steps;  // from the beginning, those before a resumed one included
  int64_t tokens_a_step;
  const std::vector<double>& step_seconds;  // of this process
  int64_t rss_before_model;                 // of this rank, in bytes
  const StartUp& start_up;                  // of this rank
};

// Collective.
nlohmann::ordered_json summarize(const FinishedRun& run);

}  // namespace fsdp2::cli
