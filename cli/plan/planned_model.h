// A sharded model without values, in a job that this process alone plays.
#pragma once

#include "cli/library.h"
#include "cli/plan/options.h"

namespace fsdp2::cli {

class PlannedModel {
 public:
  // Throws Failure, and UsageError for what the model does not have.
  explicit PlannedModel(const PlanOptions& options);

  // Units, memory without activations, traffic and schedule.
  std::string describe() const;
  // The step has options.grad_accum micro batches, each with options.micro_batch windows of
  // options.seq_len tokens.
  fsdp2_plan_memory step_memory() const;

 private:
  PlanOptions options_;
  Module module_;
  Mesh mesh_;
  Shard shard_;
};

}  // namespace fsdp2::cli
