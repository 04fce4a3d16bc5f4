#include "cli/train/save/outputs.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cli/train/save/best_checkpoint.h"
#include "cli/train/save/model_companions.h"
#include "client/numbers.h"
#include "core/config/checks/torch_file.h"

namespace fsdp2::cli {

namespace {

namespace fs = std::filesystem;

void need_writable(const std::string& flag, const std::string& path, const fs::path& what) {
  if (access(what.c_str(), W_OK) != 0) {
    throw Failure(flag + " " + path + ": " + what.string() + ": " + std::strerror(errno));
  }
}

void need_folder(const std::string& flag, const std::string& path, const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    throw Failure(flag + " " + path + ": " + folder.string() + " is a file, expected a directory");
  }
  if (!fs::is_directory(folder, error)) {
    throw Failure(flag + " " + path + ": " + folder.string() + ": no such directory");
  }
  need_writable(flag, path, folder);
}

fs::path folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

// The place beside `path` where the library writes what is to appear there whole.
fs::path place_beside(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::is_symlink(path, error) ? fs::canonical(path, error) : fs::path(path);
  const fs::path plain = target.has_filename() ? target : target.parent_path();
  return fs::absolute(plain, error).string() + ".tmp-" + std::to_string(getpid()) + "-attempt";
}

// Makes a directory and those above it, and removes what it has made. Returns what went wrong.
std::error_code make_for_now(const fs::path& wanted) {
  std::vector<fs::path> made;
  std::error_code failed;
  fs::path part;
  for (const fs::path& name : wanted) {
    part /= name;
    if (fs::create_directory(part, failed)) {
      made.push_back(part);
    }
    if (failed) {
      break;
    }
  }
  std::error_code ignored;
  for (auto folder = made.rbegin(); folder != made.rend(); ++folder) {
    fs::remove(*folder, ignored);
  }
  return failed;
}

// Why a directory cannot be made: a link on the way to it that leads nowhere, or else `failed`.
std::string reason(const fs::path& wanted, const std::error_code& failed) {
  std::error_code error;
  fs::path part;
  for (const fs::path& name : wanted) {
    part /= name;
    if (fs::is_symlink(part, error) && !fs::exists(part, error)) {
      const std::string target = fs::read_symlink(part, error).string();
      return part.string() + " is a symbolic link to " + target +
             ", where nothing is: make what it points to, or name another place";
    }
  }
  return failed.message();
}

// Permissions alone do not tell whether a directory can be made, since some file systems take
// nothing even from root, and a name may be too long. Other runs that begin now may try the same
// folders, and remove them in the middle of this.
void try_directory(const std::string& flag, const std::string& path, const fs::path& wanted) {
  constexpr int kAttempts = 100;
  std::error_code failed = make_for_now(wanted);
  for (int i = 1; i < kAttempts && failed == std::errc::no_such_file_or_directory; ++i) {
    failed = make_for_now(wanted);
  }
  if (failed) {
    throw Failure(flag + " " + path + ": nothing can be made there: " + reason(wanted, failed));
  }
}

// Checks a file that is written in place if it exists.
void check_file(const std::string& flag, const std::string& path) {
  std::error_code error;
  if (path.empty()) {
    return;
  }
  if (fs::is_directory(path, error)) {
    throw Failure(flag + " " + path + ": is a directory");
  }
  if (fs::exists(path, error)) {
    need_writable(flag, path, path);
    return;
  }
  need_folder(flag, path, folder_of(path));
}

// Checks a directory that is created if it is missing, with its parents.
void check_directory(const std::string& flag, const std::string& path) {
  if (path.empty()) {
    return;
  }
  std::error_code error;
  fs::path nearest = fs::absolute(path, error);
  while (!fs::exists(nearest, error) && nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  need_folder(flag, path, nearest);
  try_directory(flag, path, fs::absolute(path, error));
}

// Checks what appears whole: that it can be made, and that what is there is of the same kind, since
// nothing else may be replaced.
void check_replaced(const std::string& flag, const std::string& path, int32_t format,
                    const std::string& advice = "") {
  if (path.empty()) {
    return;
  }
  fsdp2_save_options save = FSDP2_SAVE_OPTIONS_INIT;
  save.format = format;
  if (fsdp2_checkpoint_check_path(path.c_str(), &save) != FSDP2_OK) {
    throw Failure(flag + " " + fsdp2_error_message() + advice);
  }
  try_directory(flag, path, place_beside(path));
}

int32_t full_format(const std::string& path) {
  return config::is_torch_file(path) ? FSDP2_CHECKPOINT_PTH : FSDP2_CHECKPOINT_SAFETENSORS;
}

// Checks a file that appears whole, in the place of what a link points to.
void check_full_weights(const std::string& flag, const std::string& path) {
  std::error_code error;
  if (path.empty()) {
    return;
  }
  if (fs::is_symlink(path, error) && !fs::exists(path, error)) {
    throw Failure(flag + " " + path + ": nothing can be made there: " + reason(path, error));
  }
  need_folder(flag, path, folder_of(path));
  check_replaced(flag, path, full_format(path));
}

}  // namespace

void check_outputs(const TrainOptions& options) {
  check_file("--metrics", options.metrics);
  check_file("--metrics-csv", options.metrics_csv);
  check_full_weights("--full-state-dict", options.full_state_dict);
  check_directory("--tensorboard", options.tensorboard);
  check_directory("--save-pretrained", options.save_pretrained);
  check_directory("--save-dir", options.save_dir);
  check_replaced("--save-pretrained", options.save_pretrained, FSDP2_CHECKPOINT_MODEL_DIRECTORY);
  if (!options.save_best.empty()) {
    check_directory("--save-best", options.save_best);
    claim_best_directory(options.save_best);
    check_replaced("--save-best", options.save_best + "/checkpoint", FSDP2_CHECKPOINT_SHARDED);
  }
  if (options.save_every == 0) {
    check_replaced("--save-dir", options.save_dir, FSDP2_CHECKPOINT_SHARDED,
                   "; with --save-every, a series could be written into it");
  } else {  // each path of the series is new, or a checkpoint; the series may be another run's
    try_directory("--save-dir", options.save_dir, place_beside(options.save_dir + "/step"));
    check_replaced("--save-dir", options.save_dir + "/step-00000000", FSDP2_CHECKPOINT_SHARDED);
  }
}

void write_outputs(const TrainOptions& options, const Mesh& mesh, const Shard& shard) {
  fsdp2_save_options save = FSDP2_SAVE_OPTIONS_INIT;
  save.dtype = client::dtype_number(options.export_dtype);
  const auto write = [&](const std::string& path, int32_t format) {
    save.format = format;
    check(fsdp2_checkpoint_save(shard.get(), {}, {}, {}, path.c_str(), &save));
  };
  if (!options.full_state_dict.empty()) {
    write(options.full_state_dict, full_format(options.full_state_dict));
  }
  if (!options.save_pretrained.empty()) {
    write(options.save_pretrained, FSDP2_CHECKPOINT_MODEL_DIRECTORY);
    if (info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, mesh.get()).rank == 0) {
      copy_model_companions(options, options.save_pretrained);
    }
  }
}

std::vector<std::string> written_outputs(const TrainOptions& options) {
  std::vector<std::string> paths;
  for (const std::string& path : {options.full_state_dict, options.save_pretrained}) {
    if (!path.empty()) {
      paths.push_back(path);
    }
  }
  return paths;
}

}  // namespace fsdp2::cli
