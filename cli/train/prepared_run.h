// What a run trains with, made in the order in which its parts need each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/library.h"
#include "cli/train/evaluation.h"
#include "cli/train/flags/options.h"
#include "cli/train/report/start_up.h"
#include "cli/train/report/trace.h"
#include "cli/train/save/checkpoints.h"
#include "cli/train/save/resume.h"
#include "cli/train/save/save_lock.h"
#include "client/reshard_choice.h"
#include "core/config/plan.h"

namespace fsdp2::cli {

struct PreparedRun {
  // Collective. Has the values of the checkpoint that the run goes on from, or its first ones. What
  // it can, it checks before the work that takes long. Nothing is written yet but the directory of
  // --trace and the lock of --save-dir. Tells the start-up what has ended. Throws Failure, and
  // UsageError, the same on all ranks.
  PreparedRun(const config::Plan& given, const Mesh& on, StartUp& start_up);
  PreparedRun(const PreparedRun&) = delete;
  PreparedRun& operator=(const PreparedRun&) = delete;

  bool is_first_rank() const { return job.rank == 0; }
  RunState state() const { return {shard, optimizer, step, loader}; }
  int64_t tokens_a_step() const { return options.global_batch * options.seq_len; }

  config::Plan plan;
  const TrainOptions& options = plan.options;
  const Mesh& mesh;
  const fsdp2_mesh_info job;
  std::optional<SaveLock> save_lock;  // of rank 0, before it reads what --save-dir has
  std::optional<Trace> trace;
  int64_t rss_before_model = 0;
  Module module;
  fsdp2_module_info model{};
  std::vector<int64_t> prompt;  // of the sample, if there is to be one
  Loader loader;
  int64_t stop = 0;  // the run ends before this step
  std::optional<Evaluation> evaluation;
  Shard shard;
  std::vector<std::string> units;  // with --pregather
  std::optional<client::ReshardChoice> reshard_choice;
  Optimizer optimizer;
  Step step;
  Resumed resumed;

 private:
  void check_model();
  void settle_length();
  void check_steps_left() const;
  void check_epochs() const;
  void keep_units_within_budget();
};

}  // namespace fsdp2::cli
