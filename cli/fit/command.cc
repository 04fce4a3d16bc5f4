#include "cli/fit/command.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>

#include "cli/arguments.h"
#include "cli/fit/search.h"
#include "cli/fit/trial.h"
#include "cli/machine/machine_memory.h"
#include "cli/machine/size_text.h"
#include "cli/train/flags/options.h"
#include "core/config/resolve.h"

namespace fsdp2::cli {

namespace {

constexpr int kMostRanks = 256;
constexpr int64_t kMostWindows = int64_t{1} << 24;
constexpr double kGigabyte = 1e9;
constexpr double kMostGigabytes = 1e6;
constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
constexpr double kMostSeconds = 86400;
// The share of the machine's free memory that may be used; the rest is for the file cache that the
// data come through.
constexpr double kUsable = 0.9;

struct FitOptions {
  int32_t ranks = 1;
  double memory_gb = 0;   // that a rank may take; 0: its part of what is free
  double memory_gib = 0;  // the same in the unit that the flag had first
  int64_t most = 4096;
  double timeout_s = 600;
  std::vector<std::string> train;
};

constexpr char kRunPlace[] =
    "the options of the run go after --, as in: fsdp2 fit --ranks 2 -- --model DIR --tokens FILE";

constexpr char kFooter[] =
    "Runs two steps on this machine with one size of the micro batch after another, and sees what\n"
    "they take: on a CPU the memory of the fullest rank, on a GPU whether they run. The outputs\n"
    "and checkpoints that the options after -- name are not written.\n\n"
    "  fsdp2 fit --ranks 2 -- --model DIR --tokens FILE --seq-len 512 --param-dtype bf16";

void require_memory(const std::string& flag, double size) {
  require(size >= 0 && size <= kMostGigabytes, flag + " must be at least 0 and at most 1000000");
}

bool parse(std::vector<std::string> arguments, FitOptions* options) {
  const auto separator = std::find(arguments.begin(), arguments.end(), "--");
  const bool is_separated = separator != arguments.end();
  if (is_separated) {
    options->train.assign(separator + 1, arguments.end());
    arguments.erase(separator, arguments.end());
  }
  CLI::App app("Finds the largest micro batch that fits into the memory of each rank.",
               "fsdp2 fit");
  set_style(app, "[OPTIONS] -- OPTIONS OF FSDP2 TRAIN...");
  add_number(app, "--ranks", &options->ranks, "Ranks of the job, on this machine")
      ->option_text("N (1)");
  CLI::Option* const memory =
      add_number(app, "--memory-gb", &options->memory_gb,
                 "Memory in GB that a rank may take, on a CPU (0: its part of what is free)")
          ->option_text("GB (0)");
  add_number(app, "--memory-gib", &options->memory_gib, "The same in GiB")
      ->option_text("GIB (0)")
      ->excludes(memory);
  add_number(app, "--most", &options->most, "Largest micro batch to try")->option_text("N (4096)");
  add_number(app, "--timeout-s", &options->timeout_s, "Seconds that two steps may take")
      ->option_text("SECONDS (600)");
  app.footer(kFooter);
  try {
    if (!parse_arguments(app, std::move(arguments))) {
      return false;
    }
  } catch (const UsageError& error) {
    throw UsageError(is_separated ? error.what() : std::string(error.what()) + "; " + kRunPlace);
  }
  require_within("--ranks", options->ranks, 1, kMostRanks);
  require_within("--most", options->most, 1, kMostWindows);
  require_memory("--memory-gb", options->memory_gb);
  require_memory("--memory-gib", options->memory_gib);
  require(options->timeout_s > 0 && options->timeout_s <= kMostSeconds,
          "--timeout-s must be more than 0 and at most a day");
  require(is_separated, kRunPlace);
  require(options->train.empty() || options->train.front() != "fsdp2",
          std::string("unexpected argument 'fsdp2' after --: ") + kRunPlace);
  return true;
}

std::string windows(int64_t n) { return std::to_string(n) + (n == 1 ? " window" : " windows"); }

void say(const std::string& line) { std::cerr << line << std::endl; }

// Why a job does not fit.
std::string reason(const Outcome& outcome) {
  return outcome.peak_bytes > 0 ? "the fullest rank takes " + size_text(outcome.peak_bytes)
                                : outcome.message;
}

std::string told(const Outcome& outcome) {
  switch (outcome.kind) {
    case Outcome::Kind::kFits:
      return "fits, with " + size_text(outcome.peak_bytes) + " in the fullest rank";
    case Outcome::Kind::kTooLarge:
      return "does not fit: " + reason(outcome);
    case Outcome::Kind::kFailed:
      return "fails: " + outcome.message;
  }
  return "";
}

int conclude(const Fit& fit, const FitOptions& options, const config::Plan& plan) {
  if (fit.micro_batch == 0) {
    const bool is_too_large = fit.beyond.kind == Outcome::Kind::kTooLarge;
    say(is_too_large ? "fsdp2 fit: not even 1 window fits: " + reason(fit.beyond) +
                           "; docs/troubleshooting.md, \"Out of memory\", has what helps"
                     : "fsdp2 fit: a job with 1 window a rank " + told(fit.beyond));
    return 1;
  }
  const int64_t global =
      fit.micro_batch * config::data_ranks(plan, options.ranks) * plan.options.grad_accum;
  std::cout << "--micro-batch " << fit.micro_batch << std::endl;
  say("the largest micro batch that fits is " + windows(fit.micro_batch) + ": --micro-batch " +
      std::to_string(fit.micro_batch) + ", or --global-batch " + std::to_string(global) +
      ", with " + size_text(fit.peak_bytes) + " in the fullest rank");
  if (fit.beyond.kind == Outcome::Kind::kTooLarge) {
    say(windows(fit.beyond_batch) + " did not fit");
  } else if (fit.beyond.kind == Outcome::Kind::kFits) {
    say("larger ones than --most " + std::to_string(options.most) + " were not tried");
  } else if (fit.beyond.kind == Outcome::Kind::kFailed) {
    say(windows(fit.beyond_batch) +
        " failed for another reason than memory: " + fit.beyond.message);
  }
  return 0;
}

int find(const FitOptions& options, const config::Plan& given, const std::string& program) {
  const config::Plan plan = without_outputs(given);
  const bool may_be_on_gpu = plan.options.device != "cpu";
  const double part = machine_memory().free() * kUsable / options.ranks;
  TrialOptions trial;
  trial.program = program;
  trial.ranks = options.ranks;
  const double asked = options.memory_gb * kGigabyte + options.memory_gib * kGibibyte;
  trial.budget_bytes = asked > 0 ? asked : part;
  trial.timeout_s = options.timeout_s;
  const double planned = planned_bytes(plan, trial);
  say("each of " + std::to_string(options.ranks) + (options.ranks == 1 ? " rank" : " ranks") +
      " may take " + size_text(trial.budget_bytes) +
      (may_be_on_gpu ? " of the host, or what its GPU has" : "") +
      (planned > 0 ? "; by its plan, 1 window takes " + size_text(planned) : ""));
  const Fit fit = largest_fit(
      [&](int64_t micro_batch) {
        const Outcome outcome = try_micro_batch(plan, trial, micro_batch);
        say(windows(micro_batch) + ": " + told(outcome));
        return outcome;
      },
      trial.budget_bytes, options.most);
  return conclude(fit, options, plan);
}

}  // namespace

int run_fit(const std::vector<std::string>& arguments, const std::string& program) {
  FitOptions options;
  if (!parse(arguments, &options)) {
    return 0;
  }
  config::Plan plan;
  const Request request = parse_train_options(options.train, &plan);
  return request == Request::kTrain ? find(options, plan, program) : 0;
}

}  // namespace fsdp2::cli
