#include "cli/train/checkpoints.h"

#include <array>
#include <cstdio>

namespace fsdp2::cli {

std::string Checkpoints::path_of(int64_t next_step) const {
  if (options_.save_every == 0) {
    return options_.save_dir;
  }
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "/step-%08lld", static_cast<long long>(next_step));
  return options_.save_dir + name.data();
}

void Checkpoints::save(const RunState& state, const std::string& path, bool background) {
  fsdp2_save_options save = FSDP2_SAVE_OPTIONS_INIT;
  save.background = background ? 1 : 0;
  save.keep_last = static_cast<int32_t>(options_.keep_last);
  check(fsdp2_checkpoint_save(state.shard.get(), state.optimizer.get(), state.step.get(),
                              state.loader.get(), path.c_str(), &save));
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
    save(state, path_of(next_step), !options_.sync_save);
    saved_ = next_step;
  } else if (!is_prepared_ && !options_.sync_save && next_due <= stop_) {
    check(fsdp2_checkpoint_prepare(state.shard.get(), state.optimizer.get(), state.step.get(),
                                   state.loader.get()));
  }
  is_prepared_ = true;
}

std::string Checkpoints::finish(const RunState& state, int64_t next_step) {
  if (options_.save_dir.empty()) {
    return "";
  }
  if (saved_ != next_step) {
    save(state, path_of(next_step), false);
  }
  check(fsdp2_checkpoint_wait(state.shard.get()));
  return path_of(next_step);
}

}  // namespace fsdp2::cli
