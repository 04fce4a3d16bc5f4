#include "cli/train/options.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "cli/arguments.h"
#include "cli/train/option_checks.h"

namespace fsdp2::cli {

namespace {

using Texts = std::vector<std::string>;

// Each rank may have its own.
const std::set<std::string> kOwn = {"--metrics", "--quiet", "--threads", "--product-engine"};

const Texts kDtypes = {"fp32", "bf16", "fp16"};
const Texts kDtypesOrNone = {"none", "fp32", "bf16", "fp16"};
const Texts kStrategies = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
                           "hybrid_shard_zero2"};
const Texts kSyncs = {"every", "last"};
const Texts kCommPaths = {"auto", "direct", "packed"};
const Texts kSchedules = {"constant", "linear", "cosine"};
const Texts kEngines = {"auto", "mkl", "onednn"};

template <typename... Visitors>
struct Overload : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overload(Visitors...) -> Overload<Visitors...>;

// What help shows in place of the value.
std::string placeholder(const Flag& flag) {
  const std::string kind =
      std::visit(Overload{[](std::string*) { return "TEXT"; }, [](double*) { return "X"; },
                          [](bool*) { return ""; }, [](auto*) { return "N"; }},
                 flag.value);
  const std::string value = flag.value_text();
  return kind + (value.empty() ? "" : " (" + value + ")");
}

void add_flag(CLI::App* app, const Flag& flag) {
  std::string help = flag.help;
  for (size_t i = 0; i < flag.choices.size(); ++i) {
    help += (i == 0 ? ": " : ", ") + flag.choices[i];
  }
  CLI::Option* option = std::visit(
      Overload{[&](bool* value) { return app->add_flag(flag.name, *value, help); },
               [&](auto* value) {
                 return app->add_option(flag.name, *value, help)->option_text(placeholder(flag));
               }},
      flag.value);
  option->group(flag.group);
  if (!flag.choices.empty()) {
    option->check(CLI::IsMember(flag.choices));
  }
}

std::vector<Flag> run_flags(TrainOptions* o) {
  const std::string model = "Model", data = "Data", steps = "Steps", sharding = "Sharding";
  return {
      {model, "--model", &o->model, "Directory with config.json and safetensors"},
      {model, "--config", &o->config, "Instead: a config.json; the weights are drawn by --seed"},
      {data, "--tokens", &o->tokens,
       "Flat little-endian token file (uint16, or uint32 for a vocabulary > 65536)"},
      {data, "--text", &o->text, "Instead: any file, each byte a token"},
      {data, "--seq-len", &o->seq_len, "Tokens a window feeds to the model"},
      {data, "--shuffle", &o->shuffle,
       "Take the windows of each epoch in an order drawn by --seed"},
      {data, "--seed", &o->seed, "Of everything that is drawn"},
      {steps, "--steps", &o->steps, "Total number of steps (also the length of the schedule)"},
      {steps, "--stop-step", &o->stop_step, "Stop before this step (0: run to --steps)"},
      {steps, "--global-batch", &o->global_batch, "Windows a step, over all ranks and micro steps"},
      {steps, "--grad-accum", &o->grad_accum, "Micro steps a step"},
      {steps, "--accum-sync", &o->accum_sync, "Reduce gradients at each micro step or at the last",
       kSyncs},
      {sharding, "--strategy", &o->strategy, "How the model lies on the ranks", kStrategies},
      {sharding, "--fsdp-size", &o->fsdp_size,
       "Ranks a shard group (0, 1: all; less: the groups are replicas)"},
      {sharding, "--reshard-after-forward", &o->reshard_after_forward, kReshardHelp},
      {sharding, "--dtype", &o->dtype, "Of the sharded parameters", kDtypes},
      {sharding, "--param-dtype", &o->param_dtype, "Gathered and computed in", kDtypesOrNone},
      {sharding, "--reduce-dtype", &o->reduce_dtype, "Gradients are reduced in", kDtypesOrNone},
      {sharding, "--activation-checkpointing", &o->activation_checkpointing,
       "Recompute each decoder layer in backward"},
      {sharding, "--cpu-offload", &o->cpu_offload,
       "Shards in host memory (on a CPU they are there anyway)"},
      {sharding, "--comm-path", &o->comm_path, "How parameters travel", kCommPaths},
  };
}

std::vector<Flag> outcome_flags(TrainOptions* o) {
  const std::string optimizer = "Optimizer", output = "Output", process = "Process",
                    checkpoint = "Checkpoints";
  return {
      {optimizer, "--optimizer", &o->optimizer, "What updates the parameters", {"adamw", "sgd"}},
      {optimizer, "--lr", &o->lr, "Peak learning rate"},
      {optimizer, "--beta1", &o->beta1, "AdamW beta1"},
      {optimizer, "--beta2", &o->beta2, "AdamW beta2"},
      {optimizer, "--eps", &o->eps, "AdamW epsilon"},
      {optimizer, "--momentum", &o->momentum, "SGD momentum"},
      {optimizer, "--weight-decay", &o->weight_decay, "Weight decay, applied to every parameter"},
      {optimizer, "--clip", &o->clip, "Clip the global gradient norm to this (0: off)"},
      {optimizer, "--loss-scale", &o->loss_scale,
       "First scale of dynamic loss scaling, for fp16; 65536 is usual (0: off)"},
      {optimizer, "--warmup", &o->warmup, "Linear warm-up steps"},
      {optimizer, "--lr-schedule", &o->lr_schedule, "After the warm-up", kSchedules},
      {optimizer, "--min-lr-ratio", &o->min_lr_ratio, "Final learning rate as a part of --lr"},
      {output, "--metrics", &o->metrics, "File for the JSON lines (default: standard output)"},
      {output, "--exact-grad-norm", &o->exact_grad_norm,
       "Also emit grad_norm_fp64, accumulated in double"},
      {output, "--quiet", &o->quiet, "Show no progress"},
      {output, "--sample", &o->sample, "Print a sample of this many tokens at the end"},
      {output, "--prompt", &o->prompt,
       "What the sample goes on from; without --text, token numbers"},
      {output, "--temperature", &o->temperature, "Of the sample (0: the most likely token)"},
      {output, "--save-pretrained", &o->save_pretrained,
       "Write config.json and model.safetensors to this directory"},
      {output, "--full-state-dict", &o->full_state_dict,
       "Write the full weights: FILE.pth or FILE.safetensors"},
      {output, "--export-dtype", &o->export_dtype,
       "Of the weights in these two (none: that of training)", kDtypesOrNone},
      {checkpoint, "--save-dir", &o->save_dir,
       "Write a DCP checkpoint here at the end, in place of one or of nothing; with --save-every a "
       "series of them in it"},
      {checkpoint, "--save-every", &o->save_every,
       "Write one to DIR/step-XXXXXXXX after so many steps, and after the last (0: at the end)"},
      {checkpoint, "--keep-last", &o->keep_last,
       "Of the series keep the newest so many, but for later steps of an older run (0: all)"},
      {checkpoint, "--sync-save", &o->sync_save, "Wait for each to be written (else: for a copy)"},
      {checkpoint, "--resume", &o->resume,
       "Go on from this checkpoint, of any format, or from the newest of a series"},
      {checkpoint, "--resume-partial", &o->resume_partial,
       "Leave what the checkpoint lacks as it is, ignore what is not of this run"},
      {process, "--device", &o->device, "Where to compute", {"auto", "cpu", "cuda"}},
      {process, "--threads", &o->threads,
       "CPU threads a rank (0: OMP_NUM_THREADS, else all cores)"},
      {process, "--product-engine", &o->product_engine, "CPU engine of fp32 products", kEngines},
      {process, "--timeout-s", &o->timeout_s, "Seconds that a rank waits for the others"},
  };
}

}  // namespace

std::string Flag::value_text() const {
  return std::visit(Overload{[](const std::string* text) { return *text; },
                             [](const auto* number) { return nlohmann::json(*number).dump(); }},
                    value);
}

std::vector<Flag> train_flags(TrainOptions* options) {
  std::vector<Flag> flags = run_flags(options);
  const std::vector<Flag> more = outcome_flags(options);
  flags.insert(flags.end(), more.begin(), more.end());
  for (Flag& flag : flags) {
    flag.same_on_all_ranks = kOwn.count(flag.name) == 0;
  }
  return flags;
}

Request parse_train_options(std::vector<std::string> arguments, TrainOptions* out) {
  TrainOptions options;
  bool version = false;
  CLI::App app("Trains a decoder language model, sharded over the ranks of the job.",
               "fsdp2 train");
  set_style(app, "(--model DIR | --config FILE) (--tokens FILE | --text FILE) [OPTIONS]");
  app.add_flag("--version", version, "Print the versions of this program and of LibTorch and exit");
  for (const Flag& flag : train_flags(&options)) {
    add_flag(&app, flag);
  }
  app.footer(
      "Rank 0 writes one JSON line a step and a summary at the end. Who a rank is comes from the\n"
      "environment that fsdp2 run, torchrun, srun or mpirun gives it; without any it is alone.\n\n"
      "  fsdp2 run --nproc-per-node 2 -- fsdp2 train --model DIR --tokens data.bin --steps 100");
  if (!parse_arguments(app, std::move(arguments))) {
    return Request::kHelpPrinted;
  }
  if (version) {
    return Request::kVersion;
  }
  check_options(options);
  *out = std::move(options);
  return Request::kTrain;
}

std::string shared_options(const TrainOptions& options) {
  TrainOptions copy = options;
  std::string text;
  for (const Flag& flag : train_flags(&copy)) {
    if (flag.same_on_all_ranks) {
      text += flag.name + "=" + flag.value_text() + "\n";
    }
  }
  return text;
}

}  // namespace fsdp2::cli
