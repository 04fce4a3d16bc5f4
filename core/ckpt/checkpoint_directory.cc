#include "core/ckpt/checkpoint_directory.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/manifest.h"
#include "core/ckpt/storage_path.h"

namespace fsdp2::ckpt {

namespace {

namespace fs = std::filesystem;

constexpr char kTemporary[] = ".tmp-";
constexpr char kMovedAside[] = ".old-";
constexpr char kStepPrefix[] = "step-";

[[noreturn]] void fail_on(const std::string& path, const char* action, int error) {
  throw Error(Code::kIo, fmt::format("{}: cannot {}: {}", path, action, system_error_text(error)),
              error);
}

// "out/step-1" of "out/step-1//".
std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
  return path;
}

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string name_of(const std::string& path) { return fs::path(path).filename().string(); }

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  FSDP2_CHECK(!error, error == std::errc::no_such_file_or_directory ? Code::kNotFound : Code::kIo,
              "{}: cannot list the directory: {}", directory, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

bool begins_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

bool exists(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0;
}

int64_t file_size(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : -1;
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  FSDP2_CHECK(!error, Code::kIo, "{}: cannot remove: {}", path, error.message());
}

// A name beside `path` that nobody has.
std::string beside(const std::string& path, const char* kind) {
  std::random_device random;
  return fmt::format("{}{}{:x}-{:08x}", path, kind, ::getpid(), random());
}

void rename_or_fail(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail_on(to, "rename the finished checkpoint to it", errno);
  }
}

// Both names keep existing throughout. False if the file system cannot do it.
bool exchange(const std::string& a, const std::string& b) {
  if (::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) {
    return true;
  }
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
    fail_on(b, "exchange the finished checkpoint with it", errno);
  }
  return false;
}

// Whether a name is one that a job left which died while it wrote `path_name`, or, of a series of
// steps, any of them.
bool is_leftover(const std::string& name, const std::string& path_name) {
  const std::string owner = name.substr(0, name.find(kTemporary));
  return owner.size() < name.size() && (owner == path_name || (step_of_directory_name(owner) &&
                                                               step_of_directory_name(path_name)));
}

}  // namespace

std::string make_temporary_directory(const std::string& given) {
  check_storage_path(given);
  const std::string path = without_slashes(given);
  const std::string parent = parent_of(path);
  std::error_code error;
  fs::create_directories(parent, error);
  FSDP2_CHECK(!error, Code::kIo, "{}: cannot make the directory: {}", parent, error.message());
  FSDP2_CHECK(!exists(path) || fs::is_directory(path, error), Code::kIo,
              "{}: is a file, expected a directory or nothing", path);
  for (const std::string& name : names_in(parent)) {
    if (is_leftover(name, name_of(path))) {
      remove_tree(parent + "/" + name);
    }
  }
  const std::string temporary = beside(path, kTemporary);
  if (::mkdir(temporary.c_str(), 0777) != 0) {
    fail_on(temporary, "make the directory", errno);
  }
  return temporary;
}

void commit_directory(const std::string& temporary, const std::string& given) {
  const std::string path = without_slashes(given);
  const std::string parent = parent_of(path);
  sync_directory(temporary);
  std::string old;
  if (!exists(path)) {
    rename_or_fail(temporary, path);
  } else if (exchange(temporary, path)) {
    old = temporary;
  } else {
    old = beside(path, kMovedAside);
    rename_or_fail(path, old);
    sync_directory(parent);  // else a crash could keep neither name
    rename_or_fail(temporary, path);
  }
  sync_directory(parent);
  if (!old.empty()) {
    remove_tree(old);
  }
  for (const std::string& name : names_in(parent)) {
    if (begins_with(name, name_of(path) + kMovedAside)) {
      remove_tree(parent + "/" + name);
    }
  }
}

void discard_directory(const std::string& temporary) noexcept {
  std::error_code error;
  fs::remove_all(temporary, error);
}

bool is_complete_checkpoint(const std::string& path) {
  if (file_size(path + "/.metadata") <= 0) {
    return false;
  }
  try {
    const std::optional<Manifest> manifest = read_manifest(path);
    return !manifest ||
           std::all_of(manifest->files.begin(), manifest->files.end(),
                       [&](const std::pair<const std::string, ManifestFile>& entry) {
                         return file_size(path + "/" + entry.first) == entry.second.bytes;
                       });
  } catch (const Error&) {
    return false;  // a damaged manifest
  }
}

std::string resolve_checkpoint(const std::string& given) {
  check_storage_path(given);
  std::string path = without_slashes(given);
  if (exists(path) || !exists(parent_of(path))) {
    return path;
  }
  const std::string parent = parent_of(path);
  for (const std::string& name : names_in(parent)) {
    if (begins_with(name, name_of(path) + kMovedAside) &&
        is_complete_checkpoint(parent + "/" + name)) {
      return parent + "/" + name;
    }
  }
  return path;
}

std::string step_directory_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::optional<int64_t> step_of_directory_name(const std::string& name) {
  constexpr size_t kMaxDigits = 18;
  const std::string digits = begins_with(name, kStepPrefix) ? name.substr(5) : "";
  if (digits.empty() || digits.size() > kMaxDigits ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoll(digits);
}

namespace {

// The complete ones with their steps, ascending.
std::vector<std::pair<int64_t, std::string>> complete_checkpoints(const std::string& directory) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : names_in(directory)) {
    // One that is moved aside stands for its name while that is missing.
    const size_t aside = name.find(kMovedAside);
    const std::string final_name = name.substr(0, aside);
    const auto step = step_of_directory_name(final_name);
    const bool stands_in = aside != std::string::npos && !exists(directory + "/" + final_name);
    if (step && (aside == std::string::npos || stands_in) &&
        is_complete_checkpoint(directory + "/" + name)) {
      found.emplace_back(*step, directory + "/" + name);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::optional<std::string> find_latest_checkpoint(const std::string& directory) {
  const auto found = complete_checkpoints(without_slashes(directory));
  return found.empty() ? std::nullopt : std::optional<std::string>(found.back().second);
}

void keep_last_checkpoints(const std::string& directory, int64_t count) {
  const auto found = complete_checkpoints(without_slashes(directory));
  for (int64_t i = 0; i + count < static_cast<int64_t>(found.size()); ++i) {
    // Under a temporary name first, so that it is at no moment a checkpoint with files missing.
    const std::string& path = found[static_cast<size_t>(i)].second;
    const std::string doomed = beside(path, kTemporary);
    rename_or_fail(path, doomed);
    remove_tree(doomed);
  }
}

}  // namespace fsdp2::ckpt
