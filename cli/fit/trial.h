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

// What rank 0 is to hold in a step of micro batches of one window, when that is most, as `fsdp2
// plan` works it out; 0 where it has no plan for this model.
double planned_bytes(const config::Plan& plan, const TrialOptions& options);

}  // namespace fsdp2::cli
