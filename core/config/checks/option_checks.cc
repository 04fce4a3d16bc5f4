#include "core/config/checks/option_checks.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/config/checks/data_files.h"
#include "core/config/checks/exported_file.h"
#include "core/config/checks/group_rules.h"
#include "core/config/checks/log_levels.h"
#include "core/config/checks/optimizer_states.h"
#include "core/config/checks/places.h"
#include "core/config/checks/require.h"
#include "core/config/checks/sharding_checks.h"
#include "core/config/checks/step_range.h"
#include "core/config/checks/torch_file.h"
#include "core/config/locale_free.h"
#include "core/config/module_pattern.h"
#include "core/config/resolve.h"

namespace fsdp2::config {

namespace {

namespace fs = std::filesystem;

bool is_within(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

// Where links on the way and at the end lead to, whether or not anything is there yet. What is no
// file is known by its name: /dev/stdout and /dev/stderr are two places, even of one terminal.
fs::path plain_path(const std::string& path) {
  std::error_code error, ignored;  // these functions set one, and some leave it as it was
  const fs::path given = without_slash(fs::absolute(path, ignored));
  const fs::path named = given.lexically_normal();
  const fs::file_status there = fs::status(given, ignored);
  if ((is_within(named, "/dev") && !is_within(named, "/dev/shm")) || is_within(named, "/proc") ||
      (fs::exists(there) && !fs::is_regular_file(there) && !fs::is_directory(there))) {
    return named;
  }
  fs::path plain = fs::weakly_canonical(given, error);
  constexpr int kMostLinks = 40;  // as Linux follows
  for (int i = 0; i < kMostLinks && !error && fs::is_symlink(plain, ignored); ++i) {  // to nothing
    plain = fs::weakly_canonical(plain.parent_path() / fs::read_symlink(plain, ignored), error);
  }
  return without_slash(error ? named : plain);
}

// Each output has a place of its own, and none lies in a directory that a checkpoint replaces.
void check_places(const TrainOptions& o) {
  using Output = std::pair<std::string, std::string>;
  std::vector<Output> outputs = {{"--save-dir", o.save_dir},
                                 {"--save-best", o.save_best},
                                 {"--save-pretrained", o.save_pretrained},
                                 {"--full-state-dict", o.full_state_dict},
                                 {"--metrics", o.metrics},
                                 {"--metrics-csv", o.metrics_csv},
                                 {"--tensorboard", o.tensorboard},
                                 {"--trace", o.trace}};
  outputs.erase(std::remove_if(outputs.begin(), outputs.end(),
                               [](const Output& output) { return output.second.empty(); }),
                outputs.end());
  for (const auto& [flag, path] : outputs) {
    for (const auto& [other_flag, other_path] : outputs) {
      if (flag == other_flag) {
        continue;
      }
      const std::string output = other_flag + " " + other_path;
      require(plain_path(path) != plain_path(other_path),
              flag + " and " + output + " are the same place");
      require(flag != "--save-dir" || o.save_every > 0 ||
                  !is_within(plain_path(other_path), plain_path(path)),
              output + " lies in --save-dir " + path + ", which the checkpoint replaces");
      require(flag != "--save-best" || !is_within(plain_path(other_path), plain_path(path)),
              output + " lies in --save-best " + path + ", which holds that checkpoint alone");
    }
  }
}

void check_recompute(const TrainOptions& o) {
  const TrainOptions usual;
  const auto need = [&](const char* flag, bool is_given) {
    require(!is_given || o.activation_checkpointing,
            std::string(flag) + " needs --activation-checkpointing");
  };
  need("--recompute", o.recompute != usual.recompute);
  need("--recompute-names", o.recompute_names != usual.recompute_names);
  need("--recompute-every", o.recompute_every != usual.recompute_every);
}

// REQUIRES: the number of steps is known, as that of a run in epochs is once its data are.
void check_steps_to_look_at(const TrainOptions& o) {
  const StepRange steps = read_step_range("--trace-steps", o.trace_steps);
  const int64_t stop = o.stop_step > 0 ? std::min(o.stop_step, o.steps) : o.steps;
  require_within("--memory-step", o.memory_step, -1, stop - 1);
  require(o.trace.empty() || steps.first < stop,
          "--trace-steps " + o.trace_steps + ": the run ends before step " +
              std::to_string(steps.first) + ", as steps count from 0");
}

void check_outcome(const TrainOptions& o) {
  const std::string& full = o.full_state_dict;
  require(full.empty() || is_torch_file(full) || fs::path(full).extension() == ".safetensors",
          "--full-state-dict " + full + ": expected FILE.pth or FILE.safetensors");
  static_cast<void>(read_log_levels("--log", o.log));
  require(o.save_every == 0 || !o.save_dir.empty(), "--save-every needs --save-dir");
  require(o.keep_last == 0 || o.save_every > 0, "--keep-last needs --save-every");
  require(o.save_weights == "no" || o.save_every > 0, "--save-weights needs --save-every");
  require(o.eval_every == 0 || !o.eval_data.empty(), "--eval-every needs --eval-data");
  require(o.save_best.empty() || !o.eval_data.empty(),
          "--save-best needs --eval-data, whose loss says which checkpoint is the best");
  require(o.prompt.empty() || o.sample > 0,
          "--prompt needs --sample, the number of tokens to write");
  require(!o.no_initialization || !o.model.empty() || !o.resume.empty(),
          "--no-initialization needs --model or --resume, which give the values");
  require(!o.resume_partial || !o.resume.empty(), "--resume-partial needs --resume");
  require(!o.resume_without_optimizer || !o.resume.empty(),
          "--resume-without-optimizer needs --resume");
  require(!o.resume_without_rng || !o.resume.empty(), "--resume-without-rng needs --resume");
  const bool saves = !o.save_dir.empty() || !o.save_best.empty();
  require(!o.save_only_model || saves, "--save-only-model needs --save-dir");
  require(!o.save_without_optimizer || saves, "--save-without-optimizer needs --save-dir");
  require(!o.save_without_rng || saves, "--save-without-rng needs --save-dir");
  require(!o.save_without_optimizer || !o.resumes_from_save_dir() || o.resume_without_optimizer,
          "--save-without-optimizer and --resume auto need --resume-without-optimizer");
  require(!o.save_only_model || !o.resumes_from_save_dir(),
          "--save-only-model and --resume auto exclude each other: no run goes on from a model "
          "alone");
  require(!o.resumes_from_save_dir() || !o.save_dir.empty(),
          "--resume auto needs --save-dir, where it looks for checkpoints");
  if (o.epochs == 0) {
    check_steps_to_look_at(o);
  }
  check_places(o);
}

// One weight for each file.
void check_mixture(const TrainOptions& o) {
  const std::vector<std::string> weights = parts_of(o.data_weights);
  const std::vector<std::string> files = data_files(o);
  require(weights.empty() || weights.size() == files.size(),
          "--data-weights: expected one number for each file of " + with_commas(files) + ", " +
              std::to_string(files.size()) + " in all, found " + std::to_string(weights.size()));
  for (const std::string& weight : weights) {
    read_data_weight(weight);
  }
}

// The upper bounds are the library's, which knows its options by other names.
void check_counts(const TrainOptions& o) {
  constexpr int64_t kMostSteps = int64_t{1} << 62;
  constexpr int64_t kMostTokens = int64_t{1} << 32;
  constexpr int64_t kMostWindows = int64_t{1} << 31;
  constexpr int64_t kMostParts = 1 << 24;
  constexpr int64_t kMostCheckpoints = 1 << 20;
  constexpr int64_t kMostPrefetch = 1 << 10;
  constexpr int64_t kMostAhead = 1 << 10;
  constexpr int64_t kMostRanks = (int64_t{1} << 31) - 1;
  require_within("--steps", o.steps, 1, kMostSteps - 1);
  require_within("--stop-step", o.stop_step, 0);
  require_within("--epochs", o.epochs, 0, kMostSteps - 1);
  require_within("--read-ahead", o.read_ahead, 0, kMostAhead);
  require_within("--vocab-size", o.vocab_size, 0, kMostTokens);
  require_within("--seq-len", o.seq_len, 1, kMostWindows);
  require_within("--global-batch", o.global_batch, o.micro_batch > 0 ? 0 : 1, kMostWindows);
  require_within("--grad-accum", o.grad_accum, 1, kMostParts);
  require_within("--micro-batch", o.micro_batch, 0, kMostWindows);
  require_within("--prefetch", o.prefetch, 0, kMostPrefetch);
  require_within("--recompute-every", o.recompute_every, 1, kMostParts);
  require_within("--mlp-tiles", o.mlp_tiles, 0, kMostParts);
  require_within("--ns-steps", o.ns_steps, 1, 99);
  require_within("--loss-scale-interval", o.loss_scale_interval, 1);
  require_within("--log-every", o.log_every, 1);
  require_within("--world-size", o.world_size, 0, kMostRanks);
  require_within("--warmup", o.warmup, 0, kMostSteps - 1);
  require_within("--threads", o.threads, 0, most_threads());
  require_within("--sample", o.sample, 0, kMostParts);
  require_within("--save-every", o.save_every, 0);
  require_within("--keep-last", o.keep_last, 0, kMostCheckpoints);
  require_within("--chunked-loss", o.chunked_loss, 0, kMostWindows - 1);
  require_within("--eval-every", o.eval_every, 0);
  require_within("--eval-size", o.eval_size, 1, kMostWindows);
  require_within("--max-skips-in-row", o.max_skips_in_row, 0, kMostParts);
}

void check_reshard_budget(const TrainOptions& o) {
  const double budget = o.reshard_budget_gb;
  require(std::isfinite(budget) && budget >= 0 && budget < 1e9,
          "--reshard-budget-gb: expected 0 to 1e9, found " + decimal_text(budget));
  if (budget == 0) {
    return;
  }
  require(!o.pregather, "--reshard-budget-gb and --pregather exclude each other");
  require(o.reshard_after_forward == "default" || o.reshard_after_forward == "true",
          "--reshard-budget-gb and --reshard-after-forward " + o.reshard_after_forward +
              " exclude each other");
  require(o.strategy == "full_shard" || o.strategy == "hybrid_shard",
          "--reshard-budget-gb needs --strategy full_shard or hybrid_shard, found " + o.strategy);
}

void check_numbers(const TrainOptions& o) {
  const auto not_negative = [](const char* flag, double value) {
    require(std::isfinite(value) && value >= 0,
            std::string(flag) + " must be a number of at least 0");
  };
  not_negative("--lr", o.lr);
  not_negative("--eps", o.eps);
  not_negative("--momentum", o.momentum);
  not_negative("--matched-adamw-rms", o.matched_adamw_rms);
  not_negative("--weight-decay", o.weight_decay);
  not_negative("--clip", o.clip);
  not_negative("--loss-scale", o.loss_scale);
  not_negative("--temperature", o.temperature);
  not_negative("--peak-tflops", o.peak_tflops);
  require(o.beta1 >= 0 && o.beta1 < 1, "--beta1 must lie in [0, 1)");
  require(o.beta2 >= 0 && o.beta2 < 1, "--beta2 must lie in [0, 1)");
  require(o.muon_momentum >= 0 && o.muon_momentum < 1, "--muon-momentum must lie in [0, 1)");
  require(o.min_lr_ratio >= 0 && o.min_lr_ratio <= 1, "--min-lr-ratio must lie in [0, 1]");
  require(o.start_lr_ratio >= 0 && o.start_lr_ratio <= 1, "--start-lr-ratio must lie in [0, 1]");
  require(o.lr_decay_ratio > 0 && o.lr_decay_ratio <= 1, "--lr-decay-ratio must lie in (0, 1]");
  require(o.warmup_ratio >= 0 && o.warmup_ratio <= 1, "--warmup-ratio must lie in [0, 1]");
  require(o.warmup == 0 || o.warmup_ratio == 0, "--warmup and --warmup-ratio exclude each other");
  constexpr double kYear = 365.0 * 24 * 3600;
  require(o.timeout_s > 0, "--timeout-s must be more than 0");
  require(o.timeout_s <= kYear, "--timeout-s must be at most a year");
  not_negative("--grace-s", o.grace_s);
  require(o.grace_s <= kYear, "--grace-s must be at most a year");
}

// All gradients are known after the last update alone.
void check_update_in_backward(const TrainOptions& o) {
  if (!o.update_in_backward) {
    return;
  }
  require(o.clip == 0, "--update-in-backward and --clip exclude each other");
  require(o.loss_scale == 0, "--update-in-backward and --loss-scale exclude each other");
  require(o.not_finite != "skip", "--update-in-backward and --not-finite skip exclude each other");
  require(o.optimizer != "muon", "--update-in-backward and --optimizer muon exclude each other");
  require(!o.cuda_graph, "--update-in-backward and --cuda-graph exclude each other");
}

void check_rules(const TrainOptions& o) {
  read_no_decay(o.no_decay);
  read_lr_scales(o.lr_scale);
  LrPlan plan(o.lr_plan);
}

}  // namespace

void check_model_is_given(const TrainOptions& o) {
  require(
      !o.model.empty() || !o.model_config.empty(),
      "--model (a directory, a .pt2 or a .pt file) or --model-config (a config.json) is needed");
  require(o.model.empty() || o.model_config.empty(),
          "--model and --model-config exclude each other");
}

void check_model_options(const TrainOptions& o) {
  check_model_is_given(o);
  check_sharding(o.sharding());
  check_counts(o);
  check_numbers(o);
}

void check_data(const TrainOptions& o) {
  const std::vector<std::pair<std::string, std::string>> sources = {
      {"--tokens", o.tokens}, {"--text", o.text}, {"--records", o.records}};
  std::string given;
  for (const auto& [flag, path] : sources) {
    require(path.empty() || given.empty(), given + " and " + flag + " exclude each other");
    given = path.empty() ? given : flag;
  }
  require(!given.empty(), "--tokens, --text or --records (a file to train on) is needed");
  tokenizer_path(o);
  check_mixture(o);
  require(!o.drop_last || o.shuffle, "--drop-last needs --shuffle");
  require(!o.drop_last || o.data_weights.empty(),
          "--drop-last: a mixture has no last step, and leaves out nothing");
}

// A program of torch.export or TorchScript has neither a config.json nor outputs but its loss.
void check_exported(const TrainOptions& o) {
  if (!is_exported_file(o.model)) {
    require(!o.plain_operators,
            "--plain-operators: " +
                (o.model.empty() ? "--model-config " + o.model_config : "--model " + o.model) +
                " is not an exported program, so it has no operators that others could replace");
    return;
  }
  const std::string model = "--model " + o.model;
  require(o.tokens.empty() || o.vocab_size > 0,
          model + " needs --vocab-size, of the --tokens: a program does not tell its own");
  require(o.records.empty(),
          "--records: " + model + " takes no positions, which keep records apart");
  require(o.sample == 0, "--sample: " + model + " gives its loss alone, and cannot write text");
  require(o.reshard_budget_gb == 0,
          "--reshard-budget-gb: " + model + " is a program, whose activations cannot be planned");
  require(o.chunked_loss == 0,
          "--chunked-loss: " + model + " computes its loss as it was exported");
  require(o.eval_data.empty(), "--eval-data: " + model +
                                   " does not tell which labels its loss counts, and cannot be "
                                   "evaluated");
  require(o.save_pretrained.empty(), "--save-pretrained: " + model +
                                         " has no config.json; --full-state-dict writes its "
                                         "weights");
}

// Each is known to keep every step from being a graph, or is refused when the step is made.
void check_cuda_graph(const TrainOptions& o) {
  require(!o.cuda_graph || !o.pregather, "--cuda-graph and --pregather exclude each other");
  require(!o.cuda_graph || !o.cpu_offload, "--cuda-graph and --cpu-offload exclude each other");
  require(!o.cuda_graph || o.ulysses_size == 1,
          "--cuda-graph and --ulysses-size exclude each other");
}

void check_step_options(const TrainOptions& o) {
  check_recompute(o);
  check_cuda_graph(o);
  check_optimizer_states(o.optimizer_states, o.optimizer, o.dtype);
  check_update_in_backward(o);
  check_reshard_budget(o);
}

void check_values(const TrainOptions& o) {
  check_sharding(o.sharding());
  check_counts(o);
  check_numbers(o);
  check_rules(o);
  check_step_options(o);
}

void check_options(const TrainOptions& o) {
  check_model_options(o);
  check_data(o);
  check_rules(o);
  check_step_options(o);
  check_outcome(o);
  check_exported(o);
}

void check_options_for_world(const TrainOptions& o, int64_t world_size) {
  check_sharding_for_world(o.sharding(), world_size);
  const int64_t ranks = world_size / o.ulysses_size;
  const int64_t parts = ranks * o.grad_accum;
  require(o.global_batch % parts == 0,
          "--global-batch " + std::to_string(o.global_batch) + " is not a multiple of ranks" +
              (o.ulysses_size > 1 ? " / --ulysses-size" : "") +
              " x --grad-accum = " + std::to_string(ranks) + " x " + std::to_string(o.grad_accum));
}

void settle_for_world(Plan* plan, int64_t world_size) {
  with_places(*plan, [&] {
    resolve_for_world(plan, world_size);
    check_options_for_world(plan->options, world_size);
  });
}

void settle_epochs(Plan* plan, int64_t steps_per_epoch) {
  if (plan->options.epochs > 0) {
    resolve_epochs(plan, steps_per_epoch);
    with_places(*plan, [&] { check_steps_to_look_at(plan->options); });
  }
}

void check_options_for_model(const TrainOptions& o, int64_t max_positions) {
  require(max_positions == 0 || o.seq_len <= max_positions,
          "--seq-len " + std::to_string(o.seq_len) + " is beyond the model's " +
              std::to_string(max_positions) + " positions");
}

}  // namespace fsdp2::config
