#include "cli/fit/trial.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/machine/child_program.h"
#include "cli/machine/scratch_directory.h"
#include "cli/machine/training_job.h"

namespace fsdp2::cli {

namespace {

using nlohmann::json;

// Stacks that threads have reserved count, too; what a rank takes is looked at in the end.
constexpr double kSlack = 512.0 * 1024 * 1024;
constexpr int kKilled = 128 + 9;  // as the system does it where memory runs out

bool lacks_memory(const ChildEnd& end) {
  const auto said = [&](const char* words) { return end.err.find(words) != std::string::npos; };
  return end.exit_code == kKilled || said("can't allocate memory") || said("out of memory") ||
         said("bad_alloc") || said("Resource temporarily unavailable") ||
         said("cannot allocate memory") || said("Cannot allocate memory");
}

Outcome outcome_of(const json& summary, double budget_bytes) {
  const bool on_device = summary.at("device") == "cuda";
  const std::vector<double> peaks = summary.at(on_device ? "peak_device_bytes" : "peak_rss_bytes");
  const double peak = *std::max_element(peaks.begin(), peaks.end());
  if (!on_device && peak > budget_bytes) {
    return {Outcome::Kind::kTooLarge, peak, "takes more than a rank may have"};
  }
  return {Outcome::Kind::kFits, peak, ""};
}

// The path of the plan with micro batches of this size, for another program to read.
std::string write_trial(config::Plan plan, int64_t micro_batch, const ScratchDirectory& scratch) {
  plan.set("micro-batch", micro_batch, "fsdp2 fit");
  return scratch.write("trial.yaml", plan.text());
}

}  // namespace

config::Plan without_outputs(config::Plan plan) {
  config::TrainOptions& o = plan.options;
  const config::TrainOptions fresh;
  for (std::string* text :
       {&o.resume, &o.save_dir, &o.save_best, &o.full_state_dict, &o.save_pretrained, &o.metrics,
        &o.metrics_csv, &o.tensorboard, &o.trace, &o.eval_data, &o.prompt}) {
    text->clear();
  }
  for (int64_t* number : {&o.save_every, &o.keep_last, &o.eval_every, &o.sample, &o.epochs,
                          &o.stop_step, &o.warmup, &o.world_size}) {
    *number = 0;
  }
  o.memory_step = -1;
  o.warmup_ratio = 0;
  o.save_weights = fresh.save_weights;
  o.no_initialization = false;
  o.resume_partial = o.resume_without_optimizer = o.resume_without_rng = false;
  o.save_only_model = o.save_without_optimizer = o.save_without_rng = false;
  o.not_finite = "apply";  // values do not matter here
  o.log_every = 1;
  o.steps = 2;
  o.quiet = true;
  plan.set("global-batch", int64_t{0}, "by micro-batch");
  return plan;
}

Outcome try_micro_batch(const config::Plan& plan, const TrialOptions& options,
                        int64_t micro_batch) {
  const ScratchDirectory scratch("fsdp2-fit");
  TrainingJob job;
  job.program = options.program;
  job.ranks = options.ranks;
  job.arguments = {write_trial(plan, micro_batch, scratch)};
  job.timeout_s = options.timeout_s;
  job.data_bytes = options.budget_bytes + kSlack;
  const JobEnd end = run_job(job);
  if (end.is_well()) {
    return outcome_of(end.summary, options.budget_bytes);
  }
  if (end.end.timed_out) {
    return {Outcome::Kind::kFailed, 0, "two steps took longer than --timeout-s"};
  }
  return {lacks_memory(end.end) ? Outcome::Kind::kTooLarge : Outcome::Kind::kFailed, 0,
          end.cause()};
}

double planned_bytes(const config::Plan& plan, const TrialOptions& options) {
  const ScratchDirectory scratch("fsdp2-fit");
  const ChildEnd end = run_child({options.program, "plan", write_trial(plan, 1, scratch),
                                  "--world-size", std::to_string(options.ranks), "--json"},
                                 {}, options.timeout_s);
  const json planned = json::parse(end.out, nullptr, false);
  return end.exit_code == 0 && planned.is_object() ? planned.value("peak_bytes", 0.0) : 0.0;
}

}  // namespace fsdp2::cli
