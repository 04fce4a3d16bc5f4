// A sharded model without values, in a job that this process alone plays.
#pragma once

#include "cli/library.h"
#include "cli/plan/options.h"
#include "client/reshard_choice.h"

namespace fsdp2::cli {

class PlannedModel {
 public:
  // Made as fsdp2 train makes it. Throws Failure, and UsageError for what the model does not have.
  explicit PlannedModel(const PlanOptions& options);

  // Units, memory without activations, traffic and schedule.
  std::string describe() const;
  // The step has grad_accum micro batches, each with micro_batch windows of seq_len tokens and
  // the images of each window.
  fsdp2_plan_memory step_memory() const;
  // All-gathers of units in a step of one micro batch.
  int64_t gathers() const;
  // Units that may stay gathered after forward where a step has so much memory, which they do from
  // then on. Throws as choose_reshard.
  client::ReshardChoice keep_gathered_within(int64_t bytes) const;

 private:
  fsdp2_plan_options plan_options() const;
  client::PlannedStep step() const;
  void keep_gathered_by_budget() const;

  PlanOptions options_;
  Module module_;
  Mesh mesh_;
  Shard shard_;
  Optimizer optimizer_;
  Step step_;  // says how the shard's step computes its loss and reduces
};

}  // namespace fsdp2::cli
