#include "cli/plan/options.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "cli/arguments.h"
#include "cli/exported_file.h"
#include "cli/optimizer_states.h"
#include "core/config/config_error.h"
#include "core/config/dialects/read_plan.h"

namespace fsdp2::cli {

namespace {

using Texts = std::vector<std::string>;

constexpr int64_t kMostWindows = 1 << 16;   // as the library
constexpr int64_t kMostTokens = 1 << 26;    // as the library
constexpr int64_t kMostPrefetch = 1 << 10;  // as the library
constexpr int64_t kMostParts = 1 << 20;     // as the library

void check_options(const PlanOptions& o) {
  require(!o.model.empty(), "no model given: --model DIR, config.json, FILE.pt2 or FILE.pt");
  require_within("--world-size", o.world_size, 1, kMostRanks);
  require(0 <= o.rank && o.rank < o.world_size,
          "--rank " + std::to_string(o.rank) +
              " is not one of 0 to --world-size - 1 = " + std::to_string(o.world_size - 1));
  require_within("--prefetch", o.prefetch, 0, kMostPrefetch);
  require_within("--seq-len", o.seq_len, 0, kMostTokens);
  require_within("--micro-batch", o.micro_batch, 1, kMostWindows);
  require_within("--micro-batch x --seq-len", o.micro_batch * o.seq_len, 0, kMostTokens);
  require_within("--grad-accum", o.grad_accum, 1, kMostParts);
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
  require(std::isfinite(o.momentum) && o.momentum >= 0,
          "--momentum must be a number of at least 0");
  check_optimizer_states(o.optimizer_states, o.optimizer, o.dtype);
  require(!o.json || o.seq_len > 0, "--json needs --seq-len, the step whose memory it tells");
  require(!o.json || o.memory_gb == 0, "--json and --memory-gb exclude each other");
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

void add_model(CLI::App* app, PlanOptions* o) {
  app->add_option(
         "--model", o->model,
         "Directory with config.json, that file, a program FILE.pt2 or FILE.pt, or gpt-90m "
         "or gpt-300m")
      ->option_text("PATH");
  add_count(app, "--world-size", &o->world_size, "Number of ranks");
  add_count(app, "--rank", &o->rank, "Rank whose memory is shown");
  add_count(app, "--fsdp-size", &o->sharding.fsdp_size, config::kFsdpSizeHelp);
  add_count(app, "--ulysses-size", &o->sharding.ulysses_size, config::kUlyssesHelp);
  add_choice(app, "--strategy", &o->sharding.strategy, "Sharding strategy", strategy_names());
  app->add_option("--reshard-after-forward", o->sharding.reshard_after_forward,
                  config::kReshardHelp)
      ->option_text("TEXT (default)");
  add_choice(app, "--shard-dim", &o->sharding.shard_dim, config::kShardDimHelp, shard_dim_names());
  add_choice(app, "--dtype", &o->dtype, "Dtype of the sharded parameters", dtype_names());
  add_choice(app, "--param-dtype", &o->param_dtype, "Dtype for gathering and computing",
             dtype_names_or_none());
  add_choice(app, "--reduce-dtype", &o->reduce_dtype, "Dtype for reducing gradients",
             dtype_names_or_none());
  add_choice(app, "--comm-path", &o->comm_path, "Communication path of parameters",
             comm_path_names());
  app->add_option("--wrap", o->sharding.wrap, config::kWrapHelp)->option_text("TEXT (default)");
  app->add_option("--wrap-names", o->sharding.wrap_names, config::kWrapNamesHelp)
      ->option_text("TEXT");
  add_choice(app, "--optimizer", &o->optimizer,
             "Optimizer whose state is counted; sgd-momentum is sgd with any --momentum above 0",
             {"adamw", "adam", "sgd", "sgd-momentum", "muon"});
  add_choice(app, "--optimizer-states", &o->optimizer_states,
             "Dtype of the two moments of AdamW and Adam; default: the parameters'",
             {"default", "fp32", "bf16"});
  add_number(*app, "--momentum", &o->momentum, "SGD momentum, which is a state unless it is 0")
      ->option_text("X (0.9)");
  add_count(app, "--prefetch", &o->prefetch, "Number of units gathered ahead of use");
}

// Puts the flags that are given into the options. False: help has been printed.
bool parse(const Texts& arguments, config::PlanRequest* request, PlanOptions* o) {
  CLI::App app("Works out what a sharded training step would hold and move, without running it.",
               "fsdp2 plan");
  set_style(app, "[FILE.yaml] --model DIR [OPTIONS]");
  *request = config::PlanRequest();
  app.add_option("FILE", request->file, "YAML file of fsdp2 train")->group("");
  app.add_option("--role", request->role, "Role of the file, if it has several")
      ->option_text("NAME");
  add_model(&app, o);
  add_step(&app, o);
  app.add_flag("--json", o->json,
               "Write only the bytes of this rank in the step of --seq-len, as one JSON line");
  app.footer(
      "FILE.yaml is a configuration of fsdp2 train; flags replace its values. Those of its keys "
      "that "
      "a plan leaves out are named.");
  return parse_arguments(app, arguments);
}

// What a plan holds in fewer bits than a file.
void check_run(const config::TrainOptions& run) {
  require_within("--world-size", run.world_size, 0, kMostRanks);
  require_within("--prefetch", run.prefetch, 0, kMostPrefetch);
  require_within("--recompute-every", run.recompute_every, 1, kMostParts);
}

// What a run of the file's options would do. Its batch may be the whole job's: then
// micro_batch is 0.
PlanOptions options_of(const config::TrainOptions& run) {
  check_run(run);
  PlanOptions o;
  o.model = run.model.empty() ? run.model_config : run.model;
  o.world_size = run.world_size > 0 ? static_cast<int>(run.world_size) : 1;
  o.sharding = run.sharding();
  o.dtype = run.dtype;
  // The devices of the run are not here; fp16, which older GPUs take instead, is as large.
  o.param_dtype = run.param_dtype == "auto" ? "bf16" : run.param_dtype;
  o.reduce_dtype = run.reduce_dtype;
  o.comm_path = run.comm_path;
  o.optimizer = run.optimizer;
  o.optimizer_states = run.optimizer_states;
  o.momentum = run.momentum;
  o.prefetch = static_cast<int>(run.prefetch);
  o.seq_len = is_exported_file(o.model) ? 0 : run.seq_len;
  o.micro_batch = run.micro_batch;
  o.grad_accum = run.grad_accum;
  o.activation_checkpointing = run.activation_checkpointing;
  o.recompute_every = static_cast<int>(run.recompute_every);
  return o;
}

// Keys that change what a step holds, and that no flag of a plan stands for.
const std::set<std::string> kLeftOut = {"untie-embeddings-and-output-weights",
                                        "config-overrides",
                                        "freeze",
                                        "accum-sync",
                                        "chunked-loss",
                                        "output-dtype",
                                        "reshard-budget-gb",
                                        "wrap-head",
                                        "wrap-embeddings",
                                        "ignored-modules",
                                        "recompute",
                                        "cpu-offload",
                                        "recompute-names",
                                        "mlp-tiles",
                                        "pregather"};

// Those that are not as usual, with where they come from.
Texts left_out(const config::Plan& plan) {
  config::TrainOptions run = plan.options, usual;
  const std::vector<config::Key> keys = config::train_keys(&run);
  const std::vector<config::Key> usual_keys = config::train_keys(&usual);
  Texts texts;
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string& name = keys[i].name;
    if (kLeftOut.count(name) > 0 && keys[i].value_text() != usual_keys[i].value_text()) {
      texts.push_back(keys[i].flag() + " (" + plan.origin_of(name) + ")");
    }
  }
  return texts;
}

void share_batch(int64_t global_batch, PlanOptions* o) {
  require_within("--grad-accum", o->grad_accum, 1, kMostParts);
  const int64_t parts =
      o->world_size / std::max<int64_t>(1, o->sharding.ulysses_size) * o->grad_accum;
  require(parts > 0 && global_batch % parts == 0,
          "--global-batch " + std::to_string(global_batch) +
              " is not a multiple of ranks x --grad-accum = " + std::to_string(parts) +
              "; give --world-size, or --micro-batch in its place");
  o->micro_batch = global_batch / parts;
}

config::Plan read_run(const config::PlanRequest& request) {
  try {
    return config::read_plan(request);
  } catch (const config::ConfigError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

bool parse_plan_options(std::vector<std::string> arguments, PlanOptions* out) {
  PlanOptions o;
  config::PlanRequest request;
  if (!parse(arguments, &request, &o)) {
    return false;
  }
  if (!request.file.empty()) {
    const config::Plan run = read_run(request);
    o = options_of(run.options);
    o.left_out = left_out(run);
    parse(arguments, &request, &o);
    if (o.micro_batch == 0) {
      share_batch(run.options.global_batch, &o);
    }
  }
  if (o.optimizer == "sgd-momentum") {
    require(o.momentum > 0, "--optimizer sgd-momentum needs a --momentum above 0");
    o.optimizer = "sgd";
  }
  check_options(o);
  *out = std::move(o);
  return true;
}

}  // namespace fsdp2::cli
