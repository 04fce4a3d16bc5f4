#include "cli/train/journal.h"

#include <iostream>

#include "cli/train/complaint.h"
#include "cli/train/report/device_memory.h"
#include "cli/train/report/memory.h"
#include "cli/train/report/overview.h"
#include "cli/train/report/step_line.h"
#include "cli/train/setup.h"

namespace fsdp2::cli {

namespace {

// "training 1.35 M parameters on ..., 100 steps of 4.1 k tokens"
std::string headline(const PreparedRun& run) {
  const std::string mesh = text_of(fsdp2_mesh_describe, run.mesh.get());
  return "training " + count_text(static_cast<double>(run.model.numel)) + " parameters on " +
         mesh.substr(0, mesh.find(" rank ")) + ", " + std::to_string(run.stop) + " steps of " +
         count_text(static_cast<double>(run.tokens_a_step())) + " tokens";
}

nlohmann::ordered_json reshard_line(const client::ReshardChoice& choice) {
  return {{"event", "reshard_budget"},
          {"kept_gathered", choice.kept},
          {"units", choice.plan.n_candidates},
          {"planned_peak_bytes", choice.plan.peak_bytes},
          {"resharded_peak_bytes", choice.plan.resharded_peak_bytes}};
}

}  // namespace

Journal::Journal(const PreparedRun& run) : run_(run) {
  if (!run.is_first_rank()) {
    return;
  }
  reports_.emplace(run.options, run.resumed.next_step);
  if (run.reshard_choice) {
    reports_->write(reshard_line(*run.reshard_choice));
  }
  int columns = 0;
  const Progress::Style style = Progress::find_style(run.options.quiet, &columns);
  progress_.emplace(style, columns, run.resumed.next_step, run.stop);
}

void Journal::introduce() {
  if (!progress_) {
    return;
  }
  say(headline(run_));
  if (!run_.options.quiet) {
    for (const std::string& line : overview(run_.shard, run_.optimizer)) {
      say(line);
    }
  }
  tell_notes(run_.plan, 0, [&](const std::string& note) { say(note); });
  for (const std::string& warning : run_.resumed.warnings) {
    complain(rank_to_show(), warning);
  }
  say(run_.resumed.story);
  if (run_.resumed.next_step >= run_.stop) {
    say("nothing left to do: step " + std::to_string(run_.resumed.next_step) + " of " +
        std::to_string(run_.stop));
  }
}

void Journal::say(const std::string& line) {
  if (progress_ && !line.empty()) {
    progress_->say(line);
  }
}

void Journal::write(const nlohmann::ordered_json& line) {
  if (!reports_) {
    return;
  }
  if (reports_->go_to_stdout()) {
    progress_->clear();
  }
  reports_->write(line);
}

void Journal::tell_step(const fsdp2_step_result& result, double seconds, double data_wait) {
  if (!progress_) {
    return;
  }
  const double tokens_per_second = static_cast<double>(run_.tokens_a_step()) / seconds;
  if ((result.step + 1) % run_.options.log_every == 0 || result.step + 1 == run_.stop) {
    write(step_line(run_.options, result, {seconds, data_wait, tokens_per_second},
                    {run_.model.numel, run_.job.world_size}));
  }
  const auto device = memory_of_device(run_.mesh);
  progress_->step({result.step, result.loss, result.grad_norm, result.lr, seconds,
                   tokens_per_second, device ? device->allocated_bytes : status_bytes("VmRSS")});
}

void Journal::tell_sample(const Sample& sample) {
  if (!progress_) {
    return;
  }
  write({{"event", "sample"}, {"prompt", sample.prompt}, {"text", sample.text}});
  if (reports_->go_to_stdout()) {
    say(sample.whole);
  } else {
    progress_->clear();
    std::cout << sample.whole << std::endl;
  }
}

}  // namespace fsdp2::cli
