// The objects of a run from the text of its plan (fsdp2_config_lower), for trainers that have
// nothing else: fsdp2_config_make_module and the calls beside it.
#pragma once

#include <cstdint>
#include <string>

#include "client/library.h"
#include "core/config/plan.h"

namespace fsdp2::client {

// What is wrong with the plan is a config::ConfigError, which names the key; what else fails is a
// Failure.
class PlannedRun {
 public:
  explicit PlannedRun(const std::string& plan);

  // What all ranks must have alike, as Plan::shared_text.
  std::string shared_text() const { return plan_.shared_text(); }
  // What is wrong with the data without a look into them; also a tokenizer that is not there.
  void check_data() const;

  void set_up_process() const;
  Mesh join_job() const;                    // collective
  Mesh lay_out_mesh(fsdp2_mesh job) const;  // collective
  Module make_model() const;
  Loader open_data(fsdp2_mesh mesh, fsdp2_module module) const;   // collective
  Shard shard_model(fsdp2_module module, fsdp2_mesh mesh) const;  // collective
  Optimizer make_optimizer(fsdp2_shard shard) const;
  Step make_step(fsdp2_shard shard, fsdp2_optimizer optimizer) const;  // collective

  // The plan with its steps in place of its epochs.
  std::string text_with_steps(int64_t steps_per_epoch) const;

 private:
  config::Plan settled_on(fsdp2_mesh mesh) const;

  std::string text_;
  config::Plan plan_;
};

}  // namespace fsdp2::client
