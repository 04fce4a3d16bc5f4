// What `fsdp2 generate` and `fsdp2 score` are asked to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/plan.h"

namespace fsdp2::cli {

// The model that both compute with.
struct ModelOptions {
  config::Plan plan;       // by the keys of training that they have, too
  std::string checkpoint;  // "": the values of --model

  const config::TrainOptions& run() const { return plan.options; }
};

struct GenerateOptions {
  ModelOptions model;
  std::vector<std::string> prompts;
  std::string prompts_file;
  std::string records;   // a file of JSON lines
  bool numbers = false;  // prompts are token numbers
  int64_t max_new_tokens = 64;
  int64_t top_k = 0;
  double top_p = 0.0;
  std::string stop_tokens;
  int64_t batch_size = 8;
  bool json = false;
};

struct ScoreOptions {
  ModelOptions model;
  int64_t batches = 1;
  bool per_token = false;
};

// False: help has been printed. Throw UsageError.
bool parse_generate_options(const std::vector<std::string>& arguments, GenerateOptions* out);
bool parse_score_options(const std::vector<std::string>& arguments, ScoreOptions* out);

}  // namespace fsdp2::cli
