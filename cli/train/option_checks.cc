#include "cli/train/option_checks.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "cli/arguments.h"

namespace fsdp2::cli {

namespace {

void need(bool condition, const std::string& message) {
  if (!condition) {
    throw UsageError(message);
  }
}

void not_provided(bool asked, const std::string& what) {
  need(!asked, what + " is not provided yet");
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void check_provided(const TrainOptions& o) { not_provided(o.device == "cuda", "--device cuda"); }

void check_outcome(const TrainOptions& o) {
  const std::string& full = o.full_state_dict;
  need(full.empty() || ends_with(full, ".safetensors") || ends_with(full, ".pth"),
       "--full-state-dict " + full + ": expected FILE.pth or FILE.safetensors");
  need(o.save_every == 0 || !o.save_dir.empty(), "--save-every needs --save-dir");
  need(o.keep_last == 0 || o.save_every > 0, "--keep-last needs --save-every");
  need(o.prompt.empty() || o.sample > 0, "--prompt needs --sample, the tokens to write");
  need(!o.resume_partial || !o.resume.empty(), "--resume-partial needs --resume");
}

void check_numbers(const TrainOptions& o) {
  const auto at_least = [](const char* flag, int64_t value, int64_t least) {
    need(value >= least,
         std::string(flag) + " " + std::to_string(value) + " is below " + std::to_string(least));
  };
  at_least("--steps", o.steps, 1);
  at_least("--stop-step", o.stop_step, 0);
  at_least("--seq-len", o.seq_len, 1);
  at_least("--global-batch", o.global_batch, 1);
  at_least("--grad-accum", o.grad_accum, 1);
  at_least("--warmup", o.warmup, 0);
  at_least("--threads", o.threads, 0);
  at_least("--sample", o.sample, 0);
  at_least("--save-every", o.save_every, 0);
  at_least("--keep-last", o.keep_last, 0);
  const auto not_negative = [](const char* flag, double value) {
    need(std::isfinite(value) && value >= 0,
         std::string(flag) + " must be a number that is not negative");
  };
  not_negative("--lr", o.lr);
  not_negative("--eps", o.eps);
  not_negative("--momentum", o.momentum);
  not_negative("--weight-decay", o.weight_decay);
  not_negative("--clip", o.clip);
  not_negative("--loss-scale", o.loss_scale);
  not_negative("--min-lr-ratio", o.min_lr_ratio);
  not_negative("--temperature", o.temperature);
  need(o.beta1 >= 0 && o.beta1 < 1, "--beta1 must lie in [0, 1)");
  need(o.beta2 >= 0 && o.beta2 < 1, "--beta2 must lie in [0, 1)");
  need(std::isfinite(o.timeout_s) && o.timeout_s > 0, "--timeout-s must be more than 0");
}

}  // namespace

void check_options(const TrainOptions& o) {
  need(!o.model.empty() || !o.config.empty(),
       "--model (a directory) or --config (a config.json) is needed");
  need(o.model.empty() || o.config.empty(), "--model and --config exclude each other");
  need(!o.tokens.empty() || !o.text.empty(), "--tokens or --text (a file to train on) is needed");
  need(o.tokens.empty() || o.text.empty(), "--tokens and --text exclude each other");
  check_provided(o);
  check_sharding(o.sharding());
  check_numbers(o);
  check_outcome(o);
}

void check_options_for_world(const TrainOptions& o, int64_t world_size) {
  const int64_t parts = world_size * o.grad_accum;
  need(o.global_batch % parts == 0,
       "--global-batch " + std::to_string(o.global_batch) +
           " is not a multiple of ranks x --grad-accum = " + std::to_string(world_size) + " x " +
           std::to_string(o.grad_accum));
}

}  // namespace fsdp2::cli
