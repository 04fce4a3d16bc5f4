// What `fsdp2 plan` is asked to work out.
#pragma once

#include <string>
#include <vector>

#include "cli/sharding.h"

namespace fsdp2::cli {

constexpr int64_t kMostRanks = 1 << 20;  // a table of all ranks is made

struct PlanOptions {
  std::string model;  // a directory with config.json, the file itself, or a program's .pt2 or .pt
  int world_size = 1;
  int rank = 0;
  Sharding sharding;
  std::string dtype = "fp32";
  std::string param_dtype = "none";
  std::string reduce_dtype = "none";
  std::string comm_path = "auto";
  std::string optimizer = "adamw";
  std::string optimizer_states = "default";
  double momentum = 0.9;  // of SGD
  int prefetch = 1;

  // The step whose memory is told; 0: none is.
  int64_t seq_len = 0;
  int64_t micro_batch = 1;
  int64_t grad_accum = 1;
  bool activation_checkpointing = false;
  int recompute_every = 1;
  double memory_gb = 0;  // which it is to fit in; 0: that is not asked
  bool json = false;

  // What a plan does not know of its configuration file: "--mlp-tiles (run.yaml:12 ...)".
  std::vector<std::string> left_out;
};

// False: help has been printed. Throws UsageError.
bool parse_plan_options(std::vector<std::string> arguments, PlanOptions* out);

}  // namespace fsdp2::cli
