// Configurations of training runs (core/config) as texts, for callers that know the core's errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp2::train {

struct RunConfigRequest {
  std::string text;               // YAML of any dialect
  std::string name;               // what messages call it
  std::string role;               // "": the only one
  std::vector<std::string> sets;  // "path.to.key=value"
  int64_t world_size = 0;         // 0: not known
};

// A plain file with every key, and notes as comments at its end. Error: kInvalidArgument, as
// config::ConfigError has it.
std::string lower_run_config(const RunConfigRequest& request);

// The value of a key in a plan that lower_run_config has made. Errors: kNotFound, with the nearest
// key; kInvalidArgument for a text that is no plan.
std::string value_in_plan(const std::string& plan, const std::string& key);

// What ranks must have alike, for agree(). Error: kInvalidArgument for a text that is no plan.
std::string shared_in_plan(const std::string& plan);

}  // namespace fsdp2::train
