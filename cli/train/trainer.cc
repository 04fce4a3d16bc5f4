#include "cli/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <optional>
#include <vector>

#include "cli/arguments.h"
#include "cli/library.h"
#include "cli/train/best_checkpoint.h"
#include "cli/train/checkpoints.h"
#include "cli/train/evaluation.h"
#include "cli/train/metrics/reports.h"
#include "cli/train/micro_batch.h"
#include "cli/train/outputs.h"
#include "cli/train/report/device_memory.h"
#include "cli/train/report/memory.h"
#include "cli/train/report/memory_report.h"
#include "cli/train/report/overview.h"
#include "cli/train/report/progress.h"
#include "cli/train/report/step_line.h"
#include "cli/train/report/summary.h"
#include "cli/train/report/trace.h"
#include "cli/train/resume.h"
#include "cli/train/sample.h"
#include "cli/train/setup.h"
#include "cli/train/stop_signal.h"
#include "client/param_dtype.h"
#include "client/reshard_budget.h"
#include "core/config/checks/option_checks.h"
#include "core/config/checks/places.h"
#include "core/config/plan.h"
#include "core/config/resolve.h"

namespace fsdp2::cli {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_from(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

class Trainer {
 public:
  Trainer(const config::Plan& plan, const Mesh& mesh);

  void prepare();
  void train();
  void finish();

 private:
  void check_model();
  void settle_length();
  void keep_units_within_budget();
  bool is_first_rank() const { return info_.rank == 0; }
  RunState run_state() const { return {shard_, optimizer_, step_, loader_}; }
  int64_t tokens_a_step() const { return options_.global_batch * options_.seq_len; }
  void introduce();
  void say(const std::string& line);
  bool is_asked_to_stop();
  void gather_units();
  void run_step();
  void run_step_and_count_memory();
  void evaluate_if_due();
  void if_sound(const std::function<void()>& save);
  void report(const fsdp2_step_result& result, double seconds, double data_wait);
  std::string save_last();
  void say_how_it_ended(const std::string& saved);
  void emit(const nlohmann::ordered_json& line);
  void show_sample();

  config::Plan plan_;
  const TrainOptions& options_ = plan_.options;
  const Mesh& mesh_;
  const fsdp2_mesh_info info_;
  fsdp2_module_info model_info_{};
  int64_t stop_ = 0;
  Resumed resumed_;
  int64_t next_step_ = 0;
  int stopped_by_ = 0;           // the signal that has ended the run before its time
  std::vector<int64_t> prompt_;  // of the sample, if there is to be one
  int64_t rss_before_model_ = 0;
  Module module_;
  Shard shard_;
  Optimizer optimizer_;
  Loader loader_;
  Step step_;
  std::vector<std::string> units_;  // with --pregather
  std::optional<client::ReshardChoice> reshard_choice_;
  std::optional<Evaluation> evaluation_;
  std::optional<Trace> trace_;
  std::optional<Checkpoints> checkpoints_;
  std::optional<BestCheckpoint> best_;
  // These are rank 0's.
  std::optional<Reports> reports_;
  std::optional<Progress> progress_;
  std::vector<double> step_seconds_;
};

Trainer::Trainer(const config::Plan& plan, const Mesh& mesh)
    : plan_(plan), mesh_(mesh), info_(info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, mesh.get())) {}

void Trainer::prepare() {
  settle_for_world(&plan_, info_.world_size);
  if (is_first_rank()) {
    check_outputs(options_);
  }
  client::settle_param_dtype(&plan_, mesh_.get());
  trace_.emplace(options_, mesh_);
  rss_before_model_ = status_bytes("VmRSS");
  make_model(options_, &module_, plan_.origin_of("config-overrides"));
  check_model();
  if (options_.sample > 0) {
    prompt_ = prompt_tokens(options_, model_info_.vocab_size);
  }
  open_data(options_, mesh_.get(), model_info_.vocab_size, &loader_);
  settle_length();
  evaluation_.emplace(options_, mesh_, model_info_.vocab_size);
  shard_model(options_, module_.get(), mesh_.get(), &shard_);
  check_batch(options_, config::data_ranks(plan_, info_.world_size), module_);
  if (!options_.leaves_values_to_checkpoint()) {
    check(fsdp2_shard_load_values(shard_.get()));
  }
  keep_units_within_budget();
  make_optimizer(options_, shard_.get(), &optimizer_);
  make_step(options_, shard_.get(), optimizer_.get(), &step_);
  units_ = options_.pregather ? unit_names(shard_) : std::vector<std::string>();
  resumed_ = resume(options_, mesh_, run_state());
  if (is_first_rank()) {
    reports_.emplace(options_, resumed_.next_step);  // refuses a second run of the same job
    if (reshard_choice_) {
      emit({{"event", "reshard_budget"},
            {"kept_gathered", reshard_choice_->kept},
            {"units", reshard_choice_->plan.n_candidates},
            {"planned_peak_bytes", reshard_choice_->plan.peak_bytes},
            {"resharded_peak_bytes", reshard_choice_->plan.resharded_peak_bytes}});
    }
  }
  best_.emplace(options_, mesh_, resumed_.next_step);
}

void Trainer::keep_units_within_budget() {
  if (options_.reshard_budget_gb == 0) {
    return;
  }
  if (info_of<fsdp2_loader_info>(fsdp2_loader_get_info, loader_.get()).n_images > 0) {
    throw Failure("--reshard-budget-gb: " + options_.records +
                  " has images, whose activations cannot be planned");
  }
  const int64_t data_ranks = config::data_ranks(plan_, info_.world_size);
  reshard_choice_ = client::choose_within_budget(options_, info_.world_size, data_ranks);
  keep_gathered(*reshard_choice_, shard_);
}

// A run in epochs is as long as its data say.
void Trainer::settle_length() {
  const auto data = info_of<fsdp2_loader_info>(fsdp2_loader_get_info, loader_.get());
  settle_epochs(&plan_, data.steps_per_epoch);
  stop_ = options_.stop_step > 0 ? std::min(options_.stop_step, options_.steps) : options_.steps;
  checkpoints_.emplace(options_, stop_);
}

// Whether the model can do what the options ask for. Its parameters have no values yet.
void Trainer::check_model() {
  model_info_ = info_of<fsdp2_module_info>(fsdp2_module_get_info, module_.get());
  const std::string positions = std::to_string(model_info_.max_positions);
  check(fsdp2_mesh_agree(mesh_.get(), "model", ("positions=" + positions).c_str()));
  config::with_places(plan_, [&] { check_options_for_model(options_, model_info_.max_positions); });
}

void Trainer::train() {
  note_stop_signals(options_.grace_s, rank_to_show());
  if (is_first_rank()) {
    introduce();
  }
  next_step_ = resumed_.next_step;
  if (next_step_ > 0) {
    evaluate_if_due();
  }
  while (next_step_ < stop_ && !is_asked_to_stop()) {
    trace_->before_step(next_step_);
    if (next_step_ == options_.memory_step) {
      run_step_and_count_memory();
    } else {
      run_step();
    }
    say(trace_->after_step(next_step_));
    ++next_step_;
    if_sound([&] { checkpoints_->after_step(run_state(), next_step_); });
    evaluate_if_due();
  }
}

// On the first rank, unless the line is empty.
void Trainer::say(const std::string& line) {
  if (is_first_rank() && !line.empty()) {
    progress_->say(line);
  }
}

// Collective. The ranks need not get a signal at the same moment, nor all of them get one; yet they
// stop after the same step.
bool Trainer::is_asked_to_stop() {
  double number = noted_stop_signal();
  if (info_.world_size > 1) {
    check(fsdp2_mesh_all_reduce(mesh_.get(), &number, 1, FSDP2_REDUCE_MAX));
  }
  stopped_by_ = static_cast<int>(number);
  return stopped_by_ != 0;
}

// Says what is about to run. The inputs are sound, and nothing has been written yet.
void Trainer::introduce() {
  int columns = 0;
  const Progress::Style style = Progress::find_style(options_.quiet, &columns);
  progress_.emplace(style, columns, resumed_.next_step, stop_);
  const std::string mesh = text_of(fsdp2_mesh_describe, mesh_.get());
  progress_->say("training " + count_text(static_cast<double>(model_info_.numel)) +
                 " parameters on " + mesh.substr(0, mesh.find(" rank ")) + ", " +
                 std::to_string(stop_) + " steps of " +
                 count_text(static_cast<double>(tokens_a_step())) + " tokens");
  if (!options_.quiet) {
    for (const std::string& line : overview(shard_, optimizer_)) {
      progress_->say(line);
    }
  }
  for (const std::string& note : plan_.notes) {
    progress_->say(note);
  }
  for (const std::string& warning : resumed_.warnings) {
    complain(rank_to_show(), warning);
  }
  if (!resumed_.story.empty()) {
    progress_->say(resumed_.story);
  }
  if (resumed_.next_step >= stop_) {
    progress_->say("no steps are left: this run ends at step " + std::to_string(stop_));
  }
}

// Starts all gathers, in the order in which forward needs them.
void Trainer::gather_units() {
  for (const std::string& unit : units_) {
    check(fsdp2_shard_unshard(shard_.get(), unit.c_str(), 1));
  }
}

void Trainer::run_step() {
  const auto start = Clock::now();
  std::vector<MicroBatch> micro_batches;
  std::vector<fsdp2_tensor> batch;
  for (int64_t i = 0; i < options_.grad_accum; ++i) {
    micro_batches.emplace_back(options_, loader_);
    const std::vector<fsdp2_tensor> inputs = micro_batches.back().inputs();
    batch.insert(batch.end(), inputs.begin(), inputs.end());
  }
  const auto has_batch = Clock::now();
  gather_units();
  fsdp2_step_result result{};
  result.struct_size = sizeof(result);
  check(fsdp2_step_run(step_.get(), batch.data(), batch.size(), &result));
  report(result, seconds_from(start, Clock::now()), seconds_from(start, has_batch));
}

void Trainer::run_step_and_count_memory() {
  MemoryReport memory(mesh_, shard_, optimizer_, options_.keeps_memory());
  memory.before_step();
  run_step();
  memory.after_step(next_step_);
  if (is_first_rank()) {
    emit(memory.line());
    progress_->say(memory.table());
  }
}

// What is due after the steps done so far. A run that is asked to stop leaves it to the one that
// goes on from its checkpoint, which therefore begins with it.
void Trainer::evaluate_if_due() {
  const bool can_be_left = !options_.save_dir.empty();
  if (!evaluation_->is_due(next_step_, stop_) || (can_be_left && is_asked_to_stop())) {
    return;
  }
  const fsdp2_evaluation evaluation = evaluation_->run(module_);
  if (is_first_rank()) {
    emit(line_of(evaluation, next_step_ - 1));
  }
  std::string saved;
  if_sound([&] { saved = best_->after_evaluation(run_state(), next_step_, evaluation.loss); });
  say(told(evaluation, next_step_ - 1) +
      (saved.empty() ? "" : ", the lowest so far: wrote " + saved));
}

// Parameters that are not finite any more (--not-finite apply) are not saved, and training goes on.
// The last save of the run tells it as the error that it is.
void Trainer::if_sound(const std::function<void()>& save) {
  try {
    save();
  } catch (const Failure& failure) {
    if (failure.status() != FSDP2_E_NOT_FINITE) {
      throw;
    }
    say("no checkpoint of step " + std::to_string(next_step_) + ": " + failure.what());
  }
}

void Trainer::report(const fsdp2_step_result& result, double seconds, double data_wait) {
  step_seconds_.push_back(seconds);
  if (!is_first_rank()) {
    return;
  }
  const double tokens_per_second = static_cast<double>(tokens_a_step()) / seconds;
  if ((result.step + 1) % options_.log_every == 0 || result.step + 1 == stop_) {
    emit(step_line(options_, result, {seconds, data_wait, tokens_per_second},
                   {model_info_.numel, info_.world_size}));
  }
  const auto device = memory_of_device(mesh_);
  progress_->step({result.step, result.loss, result.grad_norm, result.lr, seconds,
                   tokens_per_second, device ? device->allocated_bytes : status_bytes("VmRSS")});
}

void Trainer::emit(const nlohmann::ordered_json& line) {
  if (progress_ && reports_->go_to_stdout()) {
    progress_->clear();
  }
  reports_->write(line);
}

void Trainer::finish() {
  nlohmann::ordered_json summary = summarize(
      {mesh_, module_, shard_, next_step_, tokens_a_step(), step_seconds_, rss_before_model_});
  say(trace_->finish());
  const std::string saved = save_last();
  if (stopped_by_ == 0) {
    write_outputs(options_, shard_);
  } else {
    summary["stopped_by"] = stop_signal_name(stopped_by_);
  }
  if (is_first_rank()) {
    say_how_it_ended(saved);
  }
  if (options_.sample > 0 && stopped_by_ == 0) {
    show_sample();
  }
  if (is_first_rank()) {
    emit(summary);
  }
}

// Collective. A run that was stopped before its first step has nothing new to save: if nothing at
// all is saved, whoever wants to go on from it must be told.
std::string Trainer::save_last() {
  if (stopped_by_ == 0 || next_step_ > resumed_.next_step) {
    return checkpoints_->finish(run_state(), next_step_);
  }
  if (next_step_ == 0 && !options_.save_dir.empty()) {
    throw Failure("stopped by " + stop_signal_name(stopped_by_) +
                  " before the first step: nothing was saved in --save-dir " + options_.save_dir);
  }
  return "";
}

void Trainer::say_how_it_ended(const std::string& saved) {
  if (stopped_by_ != 0) {
    progress_->say(
        "stopped by " + stop_signal_name(stopped_by_) + " after " + std::to_string(next_step_) +
        " of " + std::to_string(stop_) + " steps" +
        (options_.save_dir.empty() ? ", with nothing saved: there is no --save-dir" : ""));
  }
  if (!saved.empty()) {
    progress_->say("wrote " + saved);
  }
  if (stopped_by_ == 0) {
    for (const std::string& path : written_outputs(options_)) {
      progress_->say("wrote " + path);
    }
  }
}

// Shows the sample as text, for people. If standard output carries JSON lines, the sample is one of
// them, and the text goes to standard error.
void Trainer::show_sample() {
  const Sample sample = make_sample(options_, module_, prompt_);
  if (!is_first_rank()) {
    return;
  }
  emit({{"event", "sample"}, {"prompt", sample.prompt}, {"text", sample.text}});
  if (reports_->go_to_stdout()) {
    progress_->say(sample.whole);
  } else {
    progress_->clear();
    std::cout << sample.whole << std::endl;
  }
}

// Tells the other ranks of a failure. Most library calls do that themselves, but not those that
// concern this rank alone, and nothing else tells of what fails outside the library. What is not
// finite all ranks have found together, and some may still be writing a checkpoint of before.
void tell_others(const Mesh& mesh, const std::exception& error) {
  const auto* failure = dynamic_cast<const Failure*>(&error);
  const bool is_known = failure != nullptr && (failure->status() == FSDP2_E_PEER_FAILED ||
                                               failure->status() == FSDP2_E_NOT_FINITE);
  if (!is_known) {
    static_cast<void>(fsdp2_mesh_fail(mesh.get(), error.what()) == FSDP2_OK);
  }
}

void train_on(const config::Plan& plan, const Mesh& mesh) {
  Trainer trainer(plan, mesh);
  trainer.prepare();
  trainer.train();
  trainer.finish();
}

}  // namespace

int train(const config::Plan& plan) {
  const TrainOptions& options = plan.options;
  const std::string rank = rank_to_show();
  Mesh job;
  try {
    set_up_process(options);
    join_job(plan, &job);
    Mesh mesh;
    lay_out_mesh(options, job.get(), &mesh);
    train_on(plan, mesh);
    return 0;
  } catch (const UsageError& error) {  // the same on all ranks
    if (info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, job.get()).rank == 0) {
      complain(rank, error.what());
    }
    return kUsageExitCode;
  } catch (const std::exception& error) {
    complain(rank, error.what());
    if (!job.is_null()) {
      tell_others(job, error);
    }
    return 1;
  }
}

void complain(const std::string& rank, const std::string& message) {
  const std::string who = rank.empty() ? "" : "rank " + rank + ": ";
  std::cerr << "fsdp2 train: " + who + message + "\n" << std::flush;
}

}  // namespace fsdp2::cli
