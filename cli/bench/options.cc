#include "cli/bench/options.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "cli/arguments.h"
#include "core/config/model_presets.h"
#include "core/config/sharding.h"

namespace fsdp2::cli {

namespace {

constexpr int64_t kMostRanks = 256;
constexpr int64_t kMostTokens = 1 << 20;
constexpr int64_t kMostSteps = 10000;
constexpr int64_t kMostRounds = 1000;

constexpr char kFooter[] =
    "Run nothing else on the machine meanwhile. Beside Python, both sides begin with the same\n"
    "weights and read the same tokens; a round is a run of libfsdp2, then one of Python's "
    "FSDP2.\n\n"
    "  fsdp2 bench --ranks 2 --threads 1 --quick\n"
    "  fsdp2 bench --ranks 2 --threads 1 --rounds 3 --python .venv/bin/python";

int64_t cores() { return std::max<int64_t>(1, std::thread::hardware_concurrency()); }

std::string models_to_name() {
  std::string names;
  for (const std::string& name : config::model_presets()) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names + " or a config.json";
}

void settle(BenchOptions* o) {
  if (o->models.empty()) {
    o->models = {"gpt-90m"};
    if (!o->quick) {
      o->models.insert(o->models.begin(), "gpt-300m");
    }
  }
  if (o->quick) {
    o->steps = std::min<int64_t>(o->steps, 3);
  }
  o->threads = o->threads > 0 ? o->threads : std::max<int64_t>(1, cores() / o->ranks);
}

void check_options(const BenchOptions& o) {
  const bool is_named = std::count(o.models.begin(), o.models.end(), "") == 0;
  require(is_named, "--model '': expected " + models_to_name());
  require_within("--ranks", o.ranks, 1, kMostRanks);
  require_within("--threads", o.threads, 0, most_threads());
  require_within("--seq-len", o.seq_len, 1, kMostTokens);
  require_within("--micro-batch", o.micro_batch, 1, kMostTokens);
  require_within("--steps", o.steps, 2, kMostSteps);
  require_within("--rounds", o.rounds, 1, kMostRounds);
  require(!o.python.empty(), "--python '': expected a Python program, auto or none");
  require(std::isfinite(o.timeout_s) && o.timeout_s > 0 && o.timeout_s <= 86400,
          "--timeout-s must be more than 0 and at most a day");
}

}  // namespace

int64_t BenchOptions::peak_threads() const { return std::min(ranks * threads, cores()); }

bool parse_bench_options(const std::vector<std::string>& arguments, BenchOptions* out) {
  BenchOptions o;
  CLI::App app(
      "Trains models for some steps on this machine's CPUs, and compares their speed with the "
      "CPUs' peak, and with Python's FSDP2 where there is one.",
      "fsdp2 bench");
  set_style(app, "[OPTIONS]");
  const auto add_count = [&](const char* name, int64_t* value, const char* help,
                             const std::string& usual) {
    add_number(app, name, value, help)->option_text("N (" + usual + ")");
  };
  as_utf8(app.add_option("--model", o.models,
                         "Model to train: " + models_to_name() + "; may be given several times"))
      ->option_text("TEXT ... (gpt-300m and gpt-90m)")
      ->type_size(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_count("--ranks", &o.ranks, "Ranks that the model is sharded over", "1");
  add_count("--threads", &o.threads, "CPU threads per rank (0: the cores, divided among the ranks)",
            "0");
  add_count("--seq-len", &o.seq_len, "Tokens per window", "256");
  add_count("--micro-batch", &o.micro_batch, "Windows per step and rank", "1");
  add_count("--steps", &o.steps, "Steps of each run; the first does not count", "5");
  app.add_option(
         "--param-dtype", o.param_dtype,
         help_with_choices("Dtype for gathering and computing", config::dtype_names_or_none()))
      ->option_text("TEXT (none)")
      ->check(one_of(config::dtype_names_or_none()));
  app.add_option("--python", o.python,
                 "Python whose FSDP2 trains the same models beside libfsdp2; auto: python3, where "
                 "it has torch, transformers and safetensors; none: do without")
      ->option_text("PROGRAM (auto)");
  add_count("--rounds", &o.rounds, "Runs of each side, in turn; figures are medians over them",
            "1");
  app.add_flag("--quick", o.quick, "Take the smallest preset, small matrices and 3 steps");
  app.add_flag("--json", o.json, "Write one JSON object instead of the table");
  add_number(app, "--timeout-s", &o.timeout_s, "Seconds that a run may take")
      ->option_text("SECONDS (900)");
  app.footer(kFooter);
  if (!parse_arguments(app, arguments)) {
    return false;
  }
  check_options(o);
  settle(&o);
  *out = std::move(o);
  return true;
}

}  // namespace fsdp2::cli
