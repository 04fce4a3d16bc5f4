#include "cli/plan/options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/arguments.h"
#include "cli/exported_file.h"

namespace fsdp2::cli {

namespace {

using Texts = std::vector<std::string>;

constexpr int64_t kMostWindows = 1 << 16;   // as the library
constexpr int64_t kMostTokens = 1 << 26;    // as the library
constexpr int64_t kMostPrefetch = 1 << 10;  // as the library

void check_options(const PlanOptions& o) {
  require(!o.model.empty(), "no model given: --model DIR, config.json or FILE.pt2");
  require_within("--world-size", o.world_size, 1, kMostRanks);
  require(0 <= o.rank && o.rank < o.world_size,
          "--rank " + std::to_string(o.rank) +
              " is not one of 0 to --world-size - 1 = " + std::to_string(o.world_size - 1));
  require_within("--prefetch", o.prefetch, 0, kMostPrefetch);
  require_within("--seq-len", o.seq_len, 0, kMostTokens);
  require_within("--micro-batch", o.micro_batch, 1, kMostWindows);
  require_within("--micro-batch x --seq-len", o.micro_batch * o.seq_len, 0, kMostTokens);
  require_within("--grad-accum", o.grad_accum, 1);
  require_within("--recompute-every", o.recompute_every, 1);
  require(std::isfinite(o.memory_gb) && o.memory_gb >= 0 && o.memory_gb < 1e9,
          "--memory-gb: expected 0 to 1e9, found " + std::to_string(o.memory_gb));
  require(
      o.seq_len == 0 || !is_exported_file(o.model),
      "--seq-len: --model " + o.model +
          " is a program, whose activations cannot be planned; fsdp2 train --memory-step counts "
          "them");
  require(o.memory_gb == 0 || o.seq_len > 0,
          "--memory-gb needs --seq-len: activations are a part of what has to fit");
  check_sharding(o.sharding);
  check_sharding_for_world(o.sharding, o.world_size);
}

void add_choice(CLI::App* app, const char* name, std::string* value, const std::string& help,
                const Texts& choices) {
  app->add_option(name, *value, help_with_choices(help, choices))
      ->option_text("TEXT (" + *value + ")")
      ->check(CLI::IsMember(choices));
}

template <typename Number>
void add_count(CLI::App* app, const char* name, Number* value, const std::string& help) {
  add_number(*app, name, value, help)->option_text("N (" + std::to_string(*value) + ")");
}

void add_step(CLI::App* app, PlanOptions* o) {
  add_count(
      app, "--seq-len", &o->seq_len,
      "Tokens per window of the step whose memory is told (0: activations are left out, and what "
      "ranks that share sequences exchange is of the longest ones)");
  add_count(app, "--micro-batch", &o->micro_batch, "Windows per micro batch and rank");
  add_count(app, "--grad-accum", &o->grad_accum, "Micro batches per step");
  app->add_flag("--activation-checkpointing", o->activation_checkpointing,
                "Recompute layers in backward instead of keeping what they compute");
  add_count(app, "--recompute-every", &o->recompute_every,
            "Recompute the last of each N of these layers");
  add_number(*app, "--memory-gb", &o->memory_gb,
             "Memory that a step is to fit in, in GB: shows which options make it fit")
      ->option_text("X (0: not asked)");
}

}  // namespace

bool parse_plan_options(std::vector<std::string> arguments, PlanOptions* out) {
  PlanOptions o;
  CLI::App app("Works out what a sharded training step would hold and move, without running it.",
               "fsdp2 plan");
  set_style(app, "--model DIR [OPTIONS]");
  app.add_option(
         "--model", o.model,
         "Directory with config.json, that file, a program FILE.pt2, or gpt-90m or gpt-300m")
      ->option_text("PATH");
  add_count(&app, "--world-size", &o.world_size, "Number of ranks");
  add_count(&app, "--rank", &o.rank, "Rank whose memory is shown");
  add_count(&app, "--fsdp-size", &o.sharding.fsdp_size, config::kFsdpSizeHelp);
  add_count(&app, "--ulysses-size", &o.sharding.ulysses_size, config::kUlyssesHelp);
  add_choice(&app, "--strategy", &o.sharding.strategy, "Sharding strategy", strategy_names());
  app.add_option("--reshard-after-forward", o.sharding.reshard_after_forward, config::kReshardHelp)
      ->option_text("TEXT (default)");
  add_choice(&app, "--dtype", &o.dtype, "Dtype of the sharded parameters", dtype_names());
  add_choice(&app, "--param-dtype", &o.param_dtype, "Dtype for gathering and computing",
             dtype_names_or_none());
  add_choice(&app, "--reduce-dtype", &o.reduce_dtype, "Dtype for reducing gradients",
             dtype_names_or_none());
  add_choice(&app, "--comm-path", &o.comm_path, "Communication path of parameters",
             comm_path_names());
  app.add_option("--wrap", o.sharding.wrap, config::kWrapHelp)->option_text("TEXT (default)");
  app.add_option("--wrap-names", o.sharding.wrap_names, config::kWrapNamesHelp)
      ->option_text("TEXT");
  add_choice(&app, "--optimizer", &o.optimizer, "Optimizer whose state is counted",
             {"adamw", "sgd-momentum", "sgd"});
  add_count(&app, "--prefetch", &o.prefetch, "Number of units gathered ahead of use");
  add_step(&app, &o);
  if (!parse_arguments(app, std::move(arguments))) {
    return false;
  }
  check_options(o);
  *out = std::move(o);
  return true;
}

}  // namespace fsdp2::cli
