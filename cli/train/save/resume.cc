#include "cli/train/save/resume.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

namespace fsdp2::cli {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// What a checkpoint is, as far as its metadata tells.
struct Look {
  std::string path;
  bool has_run = true;  // and not a model alone
  bool has_optimizer = true;
  std::string damage;  // "": none was seen
  std::optional<DataPlace> data = {};
};

bool has_name(const Json& checkpoint, const std::function<bool(const std::string&)>& is_meant) {
  const auto names_it = [&](const Json& entry) {
    return is_meant(entry.at("name").get_ref<const std::string&>());
  };
  const Json& tensors = checkpoint.at("tensors");
  const Json& objects = checkpoint.at("objects");
  return std::any_of(objects.begin(), objects.end(), names_it) ||
         std::any_of(tensors.begin(), tensors.end(), names_it);
}

bool has_optimizer(const Json& checkpoint) {
  return has_name(checkpoint, [](const std::string& name) {
    return name.find("param_groups.") != std::string::npos;
  });
}

// Whether the run saved its step, with its optimizer or without.
bool has_step(const Json& checkpoint) {
  return checkpoint.at("format") == "a DCP directory" &&
         has_name(checkpoint, [](const std::string& name) { return name == "step"; });
}

Look look_at(const std::string& path) {
  // The path in JSON has lost what is not UTF-8.
  const std::string found = text_of(fsdp2_checkpoint_find, path.c_str());
  const Json checkpoint = Json::parse(text_of(fsdp2_checkpoint_inspect, found.c_str()));
  const bool optimizer = has_optimizer(checkpoint);
  return {
      found, optimizer || has_step(checkpoint), optimizer,
      checkpoint.at("complete").get<bool>() ? "" : "a file is missing or has lost a part of itself",
      data_place_in(checkpoint)};
}

// Collective. Returns the library's status; *message is its message.
fsdp2_status load(const TrainOptions& options, const RunState& state, const Look& checkpoint,
                  std::string* message) {
  const bool whole = checkpoint.has_run;
  if (whole && !checkpoint.has_optimizer && !options.resume_without_optimizer &&
      !options.resumes_partially()) {
    throw Failure("--resume " + checkpoint.path +
                  ": it has no optimizer: expected --resume-without-optimizer, with which the run "
                  "begins with a new one");
  }
  fsdp2_load_options load = FSDP2_LOAD_OPTIONS_INIT;
  load.no_rng = options.resume_without_rng ? 1 : 0;
  load.partial = options.resumes_partially() ? 1 : 0;
  const fsdp2_status status = fsdp2_checkpoint_load(
      state.shard.get(),
      whole && !options.resume_without_optimizer ? state.optimizer.get() : fsdp2_optimizer{0},
      whole ? state.step.get() : fsdp2_step{0}, whole ? state.loader.get() : fsdp2_loader{0},
      checkpoint.path.c_str(), &load);
  *message = status == FSDP2_OK ? "" : fsdp2_error_message();
  return status;
}

// "; who: a.weight and 3 more", or nothing without names.
std::string some_of(const std::string& who, const Json& names) {
  if (names.empty()) {
    return "";
  }
  const std::string more =
      names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more" : "";
  return "; " + who + ": " + names.front().get<std::string>() + more;
}

std::string partial_story(const Json& report) {
  return some_of("not taken from it", report.at("missing")) +
         some_of("only in it", report.at("unexpected"));
}

// After the checkpoint has been loaded.
Resumed resumed_from(const RunState& state, const Look& checkpoint) {
  const Json report = Json::parse(text_of(fsdp2_checkpoint_get_report, state.shard.get()));
  const bool whole = checkpoint.has_run;
  const int64_t step = whole ? std::max<int64_t>(0, report.at("step").get<int64_t>()) : 0;
  const std::string from = "resuming from " + checkpoint.path;
  return {step,
          (whole ? from + " at step " + std::to_string(step)
                 : from + ", which holds a model alone: its weights, at step 0") +
              partial_story(report),
          {},
          whole ? checkpoint.data : std::nullopt};
}

Resumed resume_from(const std::string& path, const TrainOptions& options, const RunState& state) {
  Look checkpoint = look_at(path);
  std::string message;
  const fsdp2_status status = load(options, state, checkpoint, &message);
  if (status != FSDP2_OK) {
    throw Failure(message, status);
  }
  return resumed_from(state, checkpoint);
}

// ---- --resume auto

// The number in "step-00000100", or in "step-00000100.old-...", which stands for the former while
// that is being replaced.
std::optional<int64_t> step_in(const std::string& name) {
  constexpr size_t kMostDigits = 18;
  const std::string prefix = "step-";
  const std::string final_name = name.substr(0, name.find(".old-"));
  const bool has_prefix = final_name.rfind(prefix, 0) == 0;
  const std::string digits = has_prefix ? final_name.substr(prefix.size()) : "";
  if (digits.empty() || digits.size() > kMostDigits ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoll(digits);
}

// The steps of a series by number, the newest first.
std::map<int64_t, std::string, std::greater<>> steps_in(const std::string& directory) {
  std::map<int64_t, std::string, std::greater<>> steps;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (const std::optional<int64_t> step = step_in(name)) {
      steps.emplace(*step, directory + "/" + name.substr(0, name.find(".old-")));
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw Failure("--save-dir " + directory + ": " + error.message());
  }
  return steps;
}

// What a run with this --save-dir has written, the newest first.
std::vector<std::string> checkpoints_in(const std::string& save_dir) {
  std::vector<std::string> paths;
  for (const auto& [step, path] : steps_in(save_dir)) {
    paths.push_back(path);
  }
  if (paths.empty()) {
    size_t needed = 0;
    const fsdp2_status status = fsdp2_checkpoint_find(save_dir.c_str(), nullptr, 0, &needed);
    if (status != FSDP2_E_NOT_FOUND && status != FSDP2_E_UNSUPPORTED) {
      paths.push_back(save_dir);
    }
  }
  return paths;
}

// As look_at, where damage must not end the run.
Look look_for_damage(const std::string& path) {
  try {
    return look_at(path);
  } catch (const Failure& failure) {
    const bool is_unfinished =
        failure.status() == FSDP2_E_UNSUPPORTED && !fs::exists(path + "/.metadata");
    if (failure.status() != FSDP2_E_CORRUPT_DATA && !is_unfinished) {
      throw;
    }
    return {path, true, true, failure.what()};
  }
}

// Collective. What a load found damaged, on whichever rank; "" if it loaded. Throws on other
// errors.
std::string load_unless_damaged(const TrainOptions& options, const Mesh& mesh,
                                const RunState& state, const Look& checkpoint) {
  std::string message;
  const fsdp2_status status = load(options, state, checkpoint, &message);
  const bool is_own = status != FSDP2_OK && status != FSDP2_E_PEER_FAILED;
  const bool is_damage = status == FSDP2_E_CORRUPT_DATA;
  std::array<double, 2> seen = {is_damage ? 1.0 : 0.0, is_own && !is_damage ? 1.0 : 0.0};
  check(fsdp2_mesh_all_reduce(mesh.get(), seen.data(), seen.size(), FSDP2_REDUCE_MAX));
  const bool only_damage = seen[0] > 0 && seen[1] == 0;
  if (status != FSDP2_OK && !only_damage) {
    throw Failure(message, status);
  }
  return message;
}

Resumed resume_from_save_dir(const TrainOptions& options, const Mesh& mesh, const RunState& state) {
  const std::string& directory = options.save_dir;
  const std::vector<std::string> paths = checkpoints_in(directory);
  const std::string newest = paths.empty() ? "none" : paths.front();
  check(fsdp2_mesh_agree(mesh.get(), "--resume auto",
                         ("newest checkpoint=" + newest + "\n").c_str()));
  std::vector<std::string> warnings;
  for (const std::string& path : paths) {
    Look checkpoint = look_for_damage(path);
    const std::string sound = checkpoint.damage.empty() ? "yes" : "no";
    check(fsdp2_mesh_agree(mesh.get(), "--resume auto", (path + " is sound=" + sound).c_str()));
    if (checkpoint.damage.empty()) {
      checkpoint.damage = load_unless_damaged(options, mesh, state, checkpoint);
    }
    if (checkpoint.damage.empty()) {
      Resumed resumed = resumed_from(state, checkpoint);
      resumed.warnings = std::move(warnings);
      return resumed;
    }
    warnings.push_back(path + " is damaged and passed over: " + checkpoint.damage);
  }
  if (!warnings.empty()) {
    throw Failure("--resume auto: --save-dir " + directory +
                  " has no sound checkpoint: move it away to begin anew; " + warnings.front());
  }
  return {0, "no checkpoint in " + directory + " yet: starting at step 0", {}};
}

}  // namespace

Resumed resume(const TrainOptions& options, const Mesh& mesh, const RunState& state) {
  if (options.resumes_from_save_dir()) {
    return resume_from_save_dir(options, mesh, state);
  }
  return options.resume.empty() ? Resumed{} : resume_from(options.resume, options, state);
}

}  // namespace fsdp2::cli
