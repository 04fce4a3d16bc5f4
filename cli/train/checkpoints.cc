#include "cli/train/checkpoints.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace fsdp2::cli {

namespace {

using Json = nlohmann::json;

// Whether the checkpoint has more than a model.
bool has_optimizer(const Json& checkpoint) {
  const auto names_it = [](const Json& entry) {
    return entry.at("name").get_ref<const std::string&>().find("param_groups.") !=
           std::string::npos;
  };
  const Json& tensors = checkpoint.at("tensors");
  const Json& objects = checkpoint.at("objects");
  return std::any_of(objects.begin(), objects.end(), names_it) ||
         std::any_of(tensors.begin(), tensors.end(), names_it);
}

std::string partial_story(const Json& report) {
  const size_t missing = report.at("missing").size();
  const size_t unexpected = report.at("unexpected").size();
  return missing + unexpected == 0 ? ""
                                   : ", " + std::to_string(missing) + " names missing and " +
                                         std::to_string(unexpected) + " unexpected";
}

}  // namespace

Resumed resume(const TrainOptions& options, const RunState& state) {
  if (options.resume.empty()) {
    return {};
  }
  const std::string path = text_of(fsdp2_checkpoint_find, options.resume.c_str());
  const bool whole = has_optimizer(Json::parse(text_of(fsdp2_checkpoint_inspect, path.c_str())));
  fsdp2_load_options load = FSDP2_LOAD_OPTIONS_INIT;
  load.partial = options.resume_partial ? 1 : 0;
  check(fsdp2_checkpoint_load(state.shard.get(), whole ? state.optimizer.get() : fsdp2_optimizer{0},
                              whole ? state.step.get() : fsdp2_step{0},
                              whole ? state.loader.get() : fsdp2_loader{0}, path.c_str(), &load));
  const Json report = Json::parse(text_of(fsdp2_checkpoint_get_report, state.shard.get()));
  const int64_t step = whole ? std::max<int64_t>(0, report.at("step").get<int64_t>()) : 0;
  const std::string from = "resuming from " + path;
  return {step, (whole ? from + " at step " + std::to_string(step)
                       : from + ", which holds a model alone: its weights, at step 0") +
                    partial_story(report)};
}

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
