// Jobs that run two steps, to see what they take.
#pragma once

#include <cstdint>
#include <string>

#include "cli/fit/search.h"
#include "core/config/plan.h"

namespace fsdp2::cli {

struct TrialOptions {
  std::string program;  // the path of fsdp2
  int ranks = 1;
  double budget_bytes = 0;  // of a rank
  double timeout_s = 0;
};

// The configuration with all that a run leaves behind, and reads besides its model and data, taken
// out.
config::Plan without_outputs(config::Plan plan);

// A rank on the CPU that asks for more than its budget gets an error, so that the machine goes on.
Outcome try_micro_batch(const config::Plan& plan, const TrialOptions& options, int64_t micro_batch);

// What a rank holds without activations, as `fsdp2 plan` has it: "5.99 GB". "" where it has none
// for this model.
std::string planned_memory(const config::Plan& plan, const TrialOptions& options);

}  // namespace fsdp2::cli
