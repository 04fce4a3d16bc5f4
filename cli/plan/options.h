// What `fsdp2 plan` is asked to work out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/train_options.h"

namespace fsdp2::cli {

using config::TrainOptions;

constexpr int64_t kMostRanks = 1 << 20;  // a table of all ranks is made
constexpr double kGigabyte = 1e9;        // as all of a plan counts

struct PlanOptions {
  PlanOptions();

  // The run. A model is a directory with config.json, the file itself, a preset, or a program's
  // .pt2 or .pt. With a seq_len of 0 the step's memory is not told; micro_batch says how large the
  // step is.
  TrainOptions run;
  // The run as the file has it, with the keys that a plan has no use for: they say what may be
  // added to it. As usual without a file.
  TrainOptions file;
  int rank = 0;
  int64_t images = 0;      // in each window
  std::string image_size;  // "448x672", height and width
  double memory_gb = 0;    // which the step is to fit in; 0: that is not asked
  bool json = false;

  // What a plan does not know of its configuration file: "--pregather (run.yaml:12 ...)".
  std::vector<std::string> left_out;
};

// What a plan does with a key of a run, by its name in core/config/key_table.h.
enum class KeyUse {
  kFlag,          // it changes what a step holds or moves, and is a flag of the plan, too
  kLeftOut,       // it does so, and a plan says that it does not know it
  kNone,          // it changes nothing in a step's memory and traffic
  kNotDecidedYet  // a new key
};
KeyUse use_of_key(const std::string& name);

// The file that a model's directory has for its configuration; other names are that file's own.
std::string config_path(const std::string& model);

// False: help has been printed. Throws UsageError.
bool parse_plan_options(const std::vector<std::string>& arguments, PlanOptions* out);

}  // namespace fsdp2::cli
