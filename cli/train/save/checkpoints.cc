#include "cli/train/save/checkpoints.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace fsdp2::cli {

namespace {

// What a checkpoint holds besides the model; handles of 0 are left out.
struct RestOfRun {
  fsdp2_optimizer optimizer;
  fsdp2_step step;
  fsdp2_loader loader;
};

RestOfRun saved_rest(const TrainOptions& options, const RunState& state) {
  if (options.save_only_model) {
    return {};
  }
  const bool keeps = !options.save_without_optimizer;
  return {keeps ? state.optimizer.get() : fsdp2_optimizer{0}, state.step.get(), state.loader.get()};
}

}  // namespace

void save_run(const TrainOptions& options, const RunState& state, const std::string& path,
              fsdp2_save_options save) {
  save.no_rng = options.save_without_rng ? 1 : 0;
  const RestOfRun rest = saved_rest(options, state);
  check(fsdp2_checkpoint_save(state.shard.get(), rest.optimizer, rest.step, rest.loader,
                              path.c_str(), &save));
}

std::string Checkpoints::path_of(int64_t next_step) const {
  if (options_.save_every == 0) {
    return options_.save_dir;
  }
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "/step-%08lld", static_cast<long long>(next_step));
  return options_.save_dir + name.data();
}

// Before the checkpoint, which is then written in the background: a save waits for the one before.
void Checkpoints::save_weights(const RunState& state, int64_t next_step) {
  const bool is_full = options_.save_weights == "full";
  std::error_code shows_in_the_save;
  std::filesystem::create_directories(options_.save_dir, shows_in_the_save);
  const std::string file = "/fsdp_cpt" + std::to_string(next_step) + ".pth";
  fsdp2_save_options save = FSDP2_SAVE_OPTIONS_INIT;
  save.format = is_full ? FSDP2_CHECKPOINT_PTH : FSDP2_CHECKPOINT_PTH_PER_RANK;
  check(fsdp2_checkpoint_save(state.shard.get(), {}, state.step.get(), {},
                              (options_.save_dir + (is_full ? file : "")).c_str(), &save));
}

void Checkpoints::save(const RunState& state, int64_t next_step, bool background) {
  if (options_.save_weights != "no") {
    save_weights(state, next_step);
  }
  fsdp2_save_options save = FSDP2_SAVE_OPTIONS_INIT;
  save.background = background ? 1 : 0;
  save.keep_last = static_cast<int32_t>(options_.keep_last);
  save_run(options_, state, path_of(next_step), save);
}

bool Checkpoints::is_due(int64_t next_step) const {
  return options_.save_every > 0 && next_step % options_.save_every == 0;
}

void Checkpoints::after_step(const RunState& state, int64_t next_step) {
  const int64_t every = options_.save_every;
  if (every == 0) {
    return;
  }
  const int64_t next_due = next_step - next_step % every + every;
  if (is_due(next_step)) {
    save(state, next_step, !options_.sync_save);
    saved_ = next_step;
  } else if (!is_prepared_ && !options_.sync_save && next_due <= stop_) {
    const RestOfRun rest = saved_rest(options_, state);
    check(fsdp2_checkpoint_prepare(state.shard.get(), rest.optimizer, rest.step, rest.loader));
  }
  is_prepared_ = true;
}

std::string Checkpoints::finish(const RunState& state, int64_t next_step) {
  if (options_.save_dir.empty()) {
    return "";
  }
  if (saved_ != next_step) {
    save(state, next_step, false);
  }
  check(fsdp2_checkpoint_wait(state.shard.get()));
  return path_of(next_step);
}

}  // namespace fsdp2::cli
