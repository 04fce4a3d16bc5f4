#include "cli/plan/options.h"

#include <utility>

#include "cli/arguments.h"

namespace fsdp2::cli {

namespace {

using Texts = std::vector<std::string>;

const Texts kDtypes = {"fp32", "bf16", "fp16"};
const Texts kDtypesOrNone = {"none", "fp32", "bf16", "fp16"};
const Texts kStrategies = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
                           "hybrid_shard_zero2"};

void need(bool condition, const std::string& message) {
  if (!condition) {
    throw UsageError(message);
  }
}

void check_options(const PlanOptions& o) {
  need(!o.model.empty(), "no model given: --model DIR, or --model config.json");
  need(o.world_size >= 1, "--world-size must be at least 1");
  need(0 <= o.rank && o.rank < o.world_size,
       "--rank " + std::to_string(o.rank) +
           " is not one of 0 to --world-size - 1 = " + std::to_string(o.world_size - 1));
  need(o.prefetch >= 0, "--prefetch must not be negative");
  check_sharding(o.sharding);
}

void add_choice(CLI::App* app, const char* name, std::string* value, std::string help,
                const Texts& choices) {
  for (size_t i = 0; i < choices.size(); ++i) {
    help += (i == 0 ? ": " : ", ") + choices[i];
  }
  app->add_option(name, *value, help)
      ->option_text("TEXT (" + *value + ")")
      ->check(CLI::IsMember(choices));
}

template <typename Number>
void add_number(CLI::App* app, const char* name, Number* value, const std::string& help) {
  app->add_option(name, *value, help)->option_text("N (" + std::to_string(*value) + ")");
}

}  // namespace

bool parse_plan_options(std::vector<std::string> arguments, PlanOptions* out) {
  PlanOptions o;
  CLI::App app("Works out what a sharded training step would hold and move, without running it.",
               "fsdp2 plan");
  set_style(app, "--model DIR [OPTIONS]");
  app.add_option("--model", o.model, "Directory with config.json, or that file")
      ->option_text("PATH");
  add_number(&app, "--world-size", &o.world_size, "Ranks of the job");
  add_number(&app, "--rank", &o.rank, "The rank whose memory is shown");
  add_number(&app, "--fsdp-size", &o.sharding.fsdp_size,
             "Ranks a shard group (0, 1: all; less: the groups are replicas)");
  add_choice(&app, "--strategy", &o.sharding.strategy, "How the model lies on the ranks",
             kStrategies);
  app.add_option("--reshard-after-forward", o.sharding.reshard_after_forward, kReshardHelp)
      ->option_text("TEXT (default)");
  add_choice(&app, "--dtype", &o.dtype, "Of the sharded parameters", kDtypes);
  add_choice(&app, "--param-dtype", &o.param_dtype, "Gathered and computed in", kDtypesOrNone);
  add_choice(&app, "--reduce-dtype", &o.reduce_dtype, "Gradients are reduced in", kDtypesOrNone);
  add_choice(&app, "--comm-path", &o.comm_path, "How parameters travel",
             {"auto", "direct", "packed"});
  add_choice(&app, "--wrap", &o.wrap, "Units: the model's own layers, or the whole model as one",
             {"default", "none"});
  add_choice(&app, "--optimizer", &o.optimizer, "Whose state is counted",
             {"adamw", "sgd-momentum", "sgd"});
  add_number(&app, "--prefetch", &o.prefetch, "Units gathered ahead of their use");
  if (!parse_arguments(app, std::move(arguments))) {
    return false;
  }
  check_options(o);
  *out = std::move(o);
  return true;
}

}  // namespace fsdp2::cli
