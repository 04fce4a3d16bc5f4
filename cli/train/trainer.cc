#include "cli/train/trainer.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/library.h"
#include "cli/train/complaint.h"
#include "cli/train/evaluation.h"
#include "cli/train/journal.h"
#include "cli/train/micro_batch.h"
#include "cli/train/opened_data.h"
#include "cli/train/prepared_run.h"
#include "cli/train/report/memory_report.h"
#include "cli/train/report/start_up.h"
#include "cli/train/report/summary.h"
#include "cli/train/sample.h"
#include "cli/train/save/best_checkpoint.h"
#include "cli/train/save/checkpoints.h"
#include "cli/train/save/outputs.h"
#include "cli/train/setup.h"
#include "cli/train/stop_signal.h"

namespace fsdp2::cli {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_from(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

class Trainer {
 public:
  // Collective, as are all of these.
  Trainer(const config::Plan& plan, const Mesh& mesh, StartUp& start_up)
      : start_up_(start_up),
        run_(plan, mesh, start_up),
        journal_(run_),  // refuses a second run of the same job before that changes anything
        checkpoints_(options_, run_.stop),
        best_(options_, mesh, run_.resumed.next_step),
        next_step_(run_.resumed.next_step) {}

  void train();
  void finish();

 private:
  bool is_asked_to_stop();
  void gather_units();
  void run_step();
  void run_step_and_count_memory();
  void evaluate_if_due();
  void if_sound(const std::function<void()>& save);
  std::string save_last();
  void say_how_it_ended(const std::string& saved);

  const StartUp& start_up_;
  PreparedRun run_;
  const TrainOptions& options_ = run_.options;
  Journal journal_;
  Checkpoints checkpoints_;
  BestCheckpoint best_;
  int64_t next_step_;
  int stopped_by_ = 0;  // the signal that has ended the run before its time
  std::vector<double> step_seconds_;
};

void Trainer::train() {
  note_stop_signals(options_.grace_s, rank_to_show());
  journal_.introduce();
  if (next_step_ > 0) {
    evaluate_if_due();
  }
  while (next_step_ < run_.stop && !is_asked_to_stop()) {
    run_.trace->before_step(next_step_);
    if (next_step_ == options_.memory_step) {
      run_step_and_count_memory();
    } else {
      run_step();
    }
    journal_.say(run_.trace->after_step(next_step_));
    ++next_step_;
    if_sound([&] { checkpoints_.after_step(run_.state(), next_step_); });
    evaluate_if_due();
  }
}

// Collective. The ranks need not get a signal at the same moment, nor all of them get one; yet they
// stop after the same step.
bool Trainer::is_asked_to_stop() {
  double number = noted_stop_signal();
  if (run_.job.world_size > 1) {
    check(fsdp2_mesh_all_reduce(run_.mesh.get(), &number, 1, FSDP2_REDUCE_MAX));
  }
  stopped_by_ = static_cast<int>(number);
  return stopped_by_ != 0;
}

// Starts all gathers, in the order in which forward needs them.
void Trainer::gather_units() {
  for (const std::string& unit : run_.units) {
    check(fsdp2_shard_unshard(run_.shard.get(), unit.c_str(), 1));
  }
}

void Trainer::run_step() {
  const auto start = Clock::now();
  std::vector<MicroBatch> micro_batches;
  std::vector<fsdp2_tensor> batch;
  for (int64_t i = 0; i < options_.grad_accum; ++i) {
    micro_batches.emplace_back(options_, run_.loader);
    const std::vector<fsdp2_tensor> inputs = micro_batches.back().inputs();
    batch.insert(batch.end(), inputs.begin(), inputs.end());
  }
  const auto has_batch = Clock::now();
  gather_units();
  fsdp2_step_result result{};
  result.struct_size = sizeof(result);
  check(fsdp2_step_run(run_.step.get(), batch.data(), batch.size(), &result));
  step_seconds_.push_back(seconds_from(start, Clock::now()));
  journal_.tell_step(result, step_seconds_.back(), seconds_from(start, has_batch));
}

void Trainer::run_step_and_count_memory() {
  // Those of several backwards add up until the last.
  const bool has_one_reduction = options_.grad_accum == 1 || options_.accum_sync == "last";
  MemoryReport memory(run_.mesh, run_.shard, run_.optimizer,
                      {options_.keeps_memory(), options_.update_in_backward && has_one_reduction});
  memory.before_step();
  run_step();
  memory.after_step(next_step_);
  journal_.write(memory.line());
  journal_.say(memory.table());
}

// What is due after the steps done so far. A run that is asked to stop leaves it to the one that
// goes on from its checkpoint, which therefore begins with it.
void Trainer::evaluate_if_due() {
  const bool can_be_left = !options_.save_dir.empty();
  if (!run_.evaluation->is_due(next_step_, run_.stop) || (can_be_left && is_asked_to_stop())) {
    return;
  }
  const fsdp2_evaluation evaluation = run_.evaluation->run(run_.module);
  journal_.write(line_of(evaluation, next_step_ - 1));
  std::string saved;
  if_sound([&] { saved = best_.after_evaluation(run_.state(), next_step_, evaluation.loss); });
  journal_.say(told(evaluation, next_step_ - 1) +
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
    journal_.say("no checkpoint of step " + std::to_string(next_step_) + ": " + failure.what());
  }
}

void Trainer::finish() {
  nlohmann::ordered_json summary =
      summarize({run_.mesh, run_.module, run_.shard, next_step_, run_.tokens_a_step(),
                 step_seconds_, run_.rss_before_model, start_up_});
  journal_.say(run_.trace->finish());
  const std::string saved = save_last();
  if (stopped_by_ == 0) {
    write_outputs(options_, run_.mesh, run_.shard);
  } else {
    summary["stopped_by"] = stop_signal_name(stopped_by_);
  }
  say_how_it_ended(saved);
  if (options_.sample > 0 && stopped_by_ == 0) {
    journal_.tell_sample(make_sample(options_, run_.module, run_.prompt));
  }
  journal_.write(summary);
}

// A run that was stopped before its first step has nothing new to save: if nothing at all is saved,
// whoever wants to go on from it must be told.
std::string Trainer::save_last() {
  if (stopped_by_ == 0 || next_step_ > run_.resumed.next_step) {
    return checkpoints_.finish(run_.state(), next_step_);
  }
  if (next_step_ == 0 && !options_.save_dir.empty()) {
    throw Failure("stopped by " + stop_signal_name(stopped_by_) +
                  " before the first step: nothing was saved in --save-dir " + options_.save_dir);
  }
  return "";
}

void Trainer::say_how_it_ended(const std::string& saved) {
  if (stopped_by_ != 0) {
    journal_.say("stopped by " + stop_signal_name(stopped_by_) + " after " +
                 std::to_string(next_step_) + " of " + std::to_string(run_.stop) + " steps" +
                 (options_.save_dir.empty() ? ", with nothing saved: there is no --save-dir" : ""));
  }
  if (!saved.empty()) {
    journal_.say("wrote " + saved);
  }
  if (stopped_by_ == 0) {
    for (const std::string& path : written_outputs(options_)) {
      journal_.say("wrote " + path);
    }
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

void train_on(const config::Plan& plan, const Mesh& mesh, StartUp& start_up) {
  Trainer trainer(plan, mesh, start_up);
  trainer.train();
  trainer.finish();
}

}  // namespace

int train(const config::Plan& plan) {
  const TrainOptions& options = plan.options;
  const std::string rank = rank_to_show();
  StartUp start_up;
  start_up.ended("program");
  Mesh job;
  try {
    set_up_process(options);
    join_job(plan, &job);
    Mesh mesh;
    lay_out_mesh(options, job.get(), &mesh);
    start_up.ended("meeting");
    train_on(plan, mesh, start_up);
    return 0;
  } catch (const UsageError& error) {  // the same on all ranks
    if (speaks_for_all()) {
      complain(rank, error.what());
    }
    return kUsageExitCode;
  } catch (const UnfitData& error) {  // all ranks have it, or have heard of it
    if (speaks_for_all()) {
      complain(rank, error.what());
    }
    return 1;
  } catch (const std::exception& error) {
    complain(rank, error.what());
    if (!job.is_null()) {
      tell_others(job, error);
    }
    return 1;
  }
}

}  // namespace fsdp2::cli
