// A sharded model without values, in a job that this process alone plays.
#pragma once

#include "cli/library.h"
#include "cli/plan/options.h"
#include "cli/reshard_choice.h"

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
  // All-gathers of units in a step of one micro batch.
  int64_t gathers() const;
  // Units that may stay gathered after forward where a step has so much memory, which they do from
  // then on. Throws as choose_reshard.
  ReshardChoice keep_gathered_within(int64_t bytes) const;

 private:
  PlannedStep step() const;

  PlanOptions options_;
  Module module_;
  Mesh mesh_;
  Shard shard_;
};

}  // namespace fsdp2::cli
