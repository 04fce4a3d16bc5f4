#include "cli/train/option_checks.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include "cli/arguments.h"
#include "cli/torch_file.h"

namespace fsdp2::cli {

namespace {

void check_supported(const TrainOptions& o) {
  require(o.device != "cuda", "--device cuda is not supported yet");
}

void check_outcome(const TrainOptions& o) {
  const std::string& full = o.full_state_dict;
  require(full.empty() || is_torch_file(full) ||
              std::filesystem::path(full).extension() == ".safetensors",
          "--full-state-dict " + full + ": expected FILE.pth or FILE.safetensors");
  require(o.save_every == 0 || !o.save_dir.empty(), "--save-every needs --save-dir");
  require(o.keep_last == 0 || o.save_every > 0, "--keep-last needs --save-every");
  require(o.prompt.empty() || o.sample > 0,
          "--prompt needs --sample, the number of tokens to write");
  require(!o.resume_partial || !o.resume.empty(), "--resume-partial needs --resume");
}

void check_numbers(const TrainOptions& o) {
  const auto at_least = [](const char* flag, int64_t value, int64_t least) {
    require(value >= least,
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
  at_least("--max-skips-in-row", o.max_skips_in_row, 0);
  const auto not_negative = [](const char* flag, double value) {
    require(std::isfinite(value) && value >= 0,
            std::string(flag) + " must be a number of at least 0");
  };
  not_negative("--lr", o.lr);
  not_negative("--eps", o.eps);
  not_negative("--momentum", o.momentum);
  not_negative("--weight-decay", o.weight_decay);
  not_negative("--clip", o.clip);
  not_negative("--loss-scale", o.loss_scale);
  not_negative("--min-lr-ratio", o.min_lr_ratio);
  not_negative("--temperature", o.temperature);
  require(o.beta1 >= 0 && o.beta1 < 1, "--beta1 must lie in [0, 1)");
  require(o.beta2 >= 0 && o.beta2 < 1, "--beta2 must lie in [0, 1)");
  require(std::isfinite(o.timeout_s) && o.timeout_s > 0, "--timeout-s must be more than 0");
}

}  // namespace

void check_options(const TrainOptions& o) {
  require(!o.model.empty() || !o.config.empty(),
          "--model (a directory) or --config (a config.json) is needed");
  require(o.model.empty() || o.config.empty(), "--model and --config exclude each other");
  require(!o.tokens.empty() || !o.text.empty(),
          "--tokens or --text (a file to train on) is needed");
  require(o.tokens.empty() || o.text.empty(), "--tokens and --text exclude each other");
  check_supported(o);
  check_sharding(o.sharding());
  check_numbers(o);
  check_outcome(o);
}

void check_options_for_world(const TrainOptions& o, int64_t world_size) {
  const int64_t parts = world_size * o.grad_accum;
  require(o.global_batch % parts == 0,
          "--global-batch " + std::to_string(o.global_batch) +
              " is not a multiple of ranks x --grad-accum = " + std::to_string(world_size) + " x " +
              std::to_string(o.grad_accum));
}

}  // namespace fsdp2::cli
