#include "cli/plan/options.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>

#include "cli/arguments.h"
#include "cli/train/flags/key_flag.h"
#include "core/config/checks/exported_file.h"
#include "core/config/checks/option_checks.h"
#include "core/config/checks/sharding_checks.h"
#include "core/config/dialects/read_plan.h"
#include "core/config/key_table.h"
#include "core/config/plan.h"
#include "core/config/resolve.h"

namespace fsdp2::cli {

namespace {

using Texts = std::vector<std::string>;

constexpr int64_t kMostWindows = 1 << 16;   // as the library
constexpr int64_t kMostTokens = 1 << 26;    // as the library
constexpr int64_t kMostPrefetch = 1 << 10;  // as the library
constexpr int64_t kMostParts = 1 << 20;     // as the library

void check_step(const PlanOptions& o) {
  const TrainOptions& run = o.run;
  require_within("--seq-len", run.seq_len, 0, kMostTokens);
  require_within("--micro-batch", run.micro_batch, 1, kMostWindows);
  require_within("--micro-batch x --seq-len", run.micro_batch * run.seq_len, 0, kMostTokens);
  require_within("--images", o.images, 0, kMostWindows);
  require(o.images == 0 || run.seq_len > 0, "--images needs --seq-len: images are in its windows");
  require((o.images > 0) == !o.image_size.empty(), "--images and --image-size go together");
  require_within("--grad-accum", run.grad_accum, 1, kMostParts);
  require_within("--recompute-every", run.recompute_every, 1, kMostParts);
  require_within("--mlp-tiles", run.mlp_tiles, 0, kMostParts);
  require_within("--chunked-loss", run.chunked_loss, 0, kMostTokens);
  const std::string program = "--model " + run.model + " is a program, whose ";
  const bool is_program = config::is_exported_file(run.model);
  require(run.seq_len == 0 || !is_program,
          "--seq-len: " + program +
              "activations cannot be planned; fsdp2 train --memory-step counts them");
  require(run.chunked_loss == 0 || !is_program,
          "--chunked-loss: " + program + "loss is computed as it was exported");
  require(run.reshard_budget_gb == 0 || run.seq_len > 0,
          "--reshard-budget-gb needs --seq-len, the step that is to fit");
  require(std::isfinite(o.memory_gb) && o.memory_gb >= 0 && o.memory_gb < 1e9,
          "--memory-gb: expected 0 to 1e9, found " + std::to_string(o.memory_gb));
  require(o.memory_gb == 0 || run.seq_len > 0,
          "--memory-gb needs --seq-len: activations are a part of what has to fit");
  require(!o.json || run.seq_len > 0, "--json needs --seq-len, the step whose memory it tells");
  require(!o.json || o.memory_gb == 0, "--json and --memory-gb exclude each other");
}

void check_options(const PlanOptions& o) {
  const TrainOptions& run = o.run;
  require(!run.model.empty(), "no model given: --model DIR, config.json, FILE.pt2 or FILE.pt");
  require_within("--world-size", run.world_size, 1, kMostRanks);
  require(0 <= o.rank && o.rank < run.world_size,
          "--rank " + std::to_string(o.rank) +
              " is not one of 0 to --world-size - 1 = " + std::to_string(run.world_size - 1));
  require_within("--prefetch", run.prefetch, 0, kMostPrefetch);
  require(std::isfinite(run.momentum) && run.momentum >= 0,
          "--momentum must be a number of at least 0");
  check_step(o);
  check_step_options(run);
  check_sharding(run.sharding());
  check_sharding_for_world(run.sharding(), run.world_size);
}

// What a plan says otherwise than a run does, or means otherwise.
void change_for_plan(config::Key* key) {
  if (key->name == "model") {
    key->help =
        "Directory with config.json, that file, a program FILE.pt2 or FILE.pt, or gpt-90m, "
        "gpt-300m or encoder-45m";
  } else if (key->name == "model-config") {
    key->help = "The same, as fsdp2 train names a config.json";
  } else if (key->name == "world-size") {
    key->help = "Number of ranks";
  } else if (key->name == "seq-len") {
    key->help =
        "Tokens per window of the step whose memory is told (0: activations are left out, and "
        "what ranks that share sequences exchange is of the longest ones)";
  } else if (key->name == "micro-batch") {
    key->help = "Windows per micro batch and rank (0: by --global-batch, else 1)";
  } else if (key->name == "optimizer") {
    key->help = "Optimizer whose state is counted; sgd-momentum is sgd with any --momentum above 0";
    key->choices.insert(key->choices.end() - 1, "sgd-momentum");
  }
  key->group = "Options";
}

// Puts the flags that are given into the options, and notes in `given` which these are. False: help
// has been printed.
bool parse(const Texts& arguments, config::PlanRequest* request, PlanOptions* o,
           config::Plan* given) {
  CLI::App app("Works out what a sharded training step would hold and move, without running it.",
               "fsdp2 plan");
  set_style(app, "[FILE.yaml] --model DIR [OPTIONS]");
  *request = config::PlanRequest();
  as_path(app.add_option("FILE", request->file, "YAML file of fsdp2 train"))->group("");
  app.add_option("--role", request->role, "Role of the file, if it has several")
      ->option_text("NAME");
  add_number(app, "--rank", &o->rank, "Rank whose memory is shown")->option_text("N (0)");
  for (config::Key& key : config::train_keys(&o->run)) {
    if (use_of_key(key.name) == KeyUse::kFlag) {
      change_for_plan(&key);
      add_flag(&app, key);
    }
  }
  add_number(app, "--images", &o->images, "Images in each window, for a model that sees images")
      ->option_text("N (0)");
  app.add_option("--image-size", o->image_size,
                 "Height and width of these images in pixels, as 448x672")
      ->option_text("HxW");
  add_number(app, "--memory-gb", &o->memory_gb,
             "Memory that a step is to fit in, in GB: shows which options make it fit")
      ->option_text("X (0: not asked)");
  app.add_flag("--json", o->json,
               "Write only the bytes of this rank in the step of --seq-len, as one JSON line");
  app.footer(
      "FILE.yaml is a configuration of fsdp2 train; flags replace its values, and mean what they "
      "mean there. Those of its keys that a plan leaves out are named.");
  if (!parse_arguments(app, arguments)) {
    return false;
  }
  note_given_flags(app, given);
  return true;
}

// What a plan holds in fewer bits than a file.
void check_run(const config::TrainOptions& run) {
  require_within("--world-size", run.world_size, 0, kMostRanks);
  require_within("--prefetch", run.prefetch, 0, kMostPrefetch);
  require_within("--recompute-every", run.recompute_every, 1, kMostParts);
}

// Keys that are left out and not as usual, with where they come from.
Texts left_out(const config::Plan& plan) {
  config::TrainOptions run = plan.options, usual;
  const std::vector<config::Key> keys = config::train_keys(&run);
  const std::vector<config::Key> usual_keys = config::train_keys(&usual);
  Texts texts;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (use_of_key(keys[i].name) == KeyUse::kLeftOut &&
        keys[i].value_text() != usual_keys[i].value_text()) {
      texts.push_back(keys[i].flag() + " (" + plan.origin_of(keys[i].name) + ")");
    }
  }
  return texts;
}

// The run as far as a plan looks at it. The rest is as usual: some of it, as the steps of a run in
// epochs, fits together only once data are read.
TrainOptions used_of(TrainOptions run) {
  TrainOptions usual;
  const std::vector<config::Key> keys = config::train_keys(&run);
  const std::vector<config::Key> usual_keys = config::train_keys(&usual);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (use_of_key(keys[i].name) != KeyUse::kFlag) {
      std::visit([&](auto* value) { *value = *std::get<decltype(value)>(usual_keys[i].value); },
                 keys[i].value);
    }
  }
  return run;
}

// What a run of the file's options would do.
PlanOptions options_of(const config::Plan& plan) {
  check_run(plan.options);
  PlanOptions o;
  o.run = used_of(plan.options);
  o.file = plan.options;
  o.run.world_size = std::max<int64_t>(1, o.run.world_size);
  o.run.seq_len = config::is_exported_file(o.run.model) ? 0 : o.run.seq_len;
  o.left_out = left_out(plan);
  return o;
}

// The micro batch may be told as a part of the whole job's. `given` knows which of the two is.
void share_batch(config::Plan given, config::TrainOptions* run) {
  require_within("--world-size", run->world_size, 1, kMostRanks);
  require_within("--micro-batch", run->micro_batch, 0, kMostWindows);
  if (run->micro_batch > 0) {
    given.options = *run;
    config::check_batch(given, run->world_size);
    return;
  }
  if (run->global_batch == 0) {
    run->micro_batch = 1;
    return;
  }
  require_within("--grad-accum", run->grad_accum, 1, kMostParts);
  const int64_t parts = run->world_size / std::max<int64_t>(1, run->ulysses_size) * run->grad_accum;
  require(run->global_batch > 0 && parts > 0 && run->global_batch % parts == 0,
          "--global-batch " + std::to_string(run->global_batch) +
              " is not a multiple of ranks x --grad-accum = " + std::to_string(parts) +
              "; give --world-size, or --micro-batch in its place");
  run->micro_batch = run->global_batch / parts;
}

void settle(const config::Plan& given, PlanOptions* o) {
  TrainOptions& run = o->run;
  require(run.model.empty() || run.model_config.empty(),
          "--model and --model-config exclude each other");
  if (run.model.empty()) {
    run.model = std::exchange(run.model_config, "");
  }
  share_batch(given, &run);
  if (o->memory_gb > 0 && run.reshard_budget_gb > 0) {
    run.reshard_budget_gb = 0;
    o->left_out.push_back(
        "--reshard-budget-gb, as --memory-gb tells which units may stay gathered");
  }
  if (run.param_dtype == "auto") {
    // The devices of the run are not here; fp16, which older GPUs take instead, is as large.
    run.param_dtype = "bf16";
  }
  if (run.optimizer == "sgd-momentum") {
    require(run.momentum > 0, "--optimizer sgd-momentum needs a --momentum above 0");
    run.optimizer = "sgd";
  }
}

}  // namespace

std::string config_path(const std::string& model) {
  std::error_code error;
  return std::filesystem::is_directory(model, error) ? model + "/config.json" : model;
}

PlanOptions::PlanOptions() {
  run.seq_len = 0;
  run.global_batch = 0;
  run.world_size = 1;
}

bool parse_plan_options(const Texts& arguments, PlanOptions* out) {
  PlanOptions o;
  config::PlanRequest request;
  config::Plan given;
  if (!parse(arguments, &request, &o, &given)) {
    return false;
  }
  if (!request.file.empty()) {
    given = config::read_plan(request);
    o = options_of(given);
    parse(arguments, &request, &o, &given);
  }
  settle(given, &o);
  check_options(o);
  *out = std::move(o);
  return true;
}

}  // namespace fsdp2::cli
