#include "core/ckpt/store/checkpoint_directory.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/ckpt/bytes/manifest.h"
#include "core/ckpt/store/directory_names.h"
#include "core/ckpt/store/storage_path.h"

namespace fsdp2::ckpt {

namespace {

constexpr char kStepPrefix[] = "step-";

int64_t file_size(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : -1;
}

}  // namespace

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
  } catch (const Error& error) {
    // Damage makes it incomplete. A later version does not: the answer to it is not an older
    // checkpoint.
    return error.code() == Code::kUnsupported;
  }
}

std::string resolve_checkpoint(const std::string& given) {
  check_storage_path(given);
  std::string path = without_slashes(given);
  if (path_exists(path) || !path_exists(parent_of(path))) {
    return path;
  }
  const std::string parent = parent_of(path);
  std::string aside;
  for (const std::string& name : names_in(parent)) {
    if (starts_with(name, last_name_of(path) + kMovedAside)) {
      aside = parent + "/" + name;
      if (is_complete_checkpoint(aside)) {
        return aside;
      }
    }
  }
  // A format without a mark of completeness: the directory was whole when it was moved.
  return aside.empty() || file_size(aside + "/.metadata") >= 0 ? path : aside;
}

std::string step_directory_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::optional<int64_t> step_of_directory_name(const std::string& name) {
  constexpr size_t kMaxDigits = 18;
  const std::string digits = starts_with(name, kStepPrefix) ? name.substr(5) : "";
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
    const bool stands_in = aside != std::string::npos && !path_exists(directory + "/" + final_name);
    if (step && (aside == std::string::npos || stands_in) &&
        is_complete_checkpoint(directory + "/" + name)) {
      found.emplace_back(*step, directory + "/" + name);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

// A checkpoint appears whole: one with files missing was whole once.
void warn_of_damaged_after(int64_t step, const std::string& directory, const std::string& taken) {
  for (const std::string& name : names_in(directory)) {
    if (step_of_directory_name(name).value_or(-1) > step &&
        path_exists(directory + "/" + name + "/.metadata")) {
      log(LogLevel::kWarning, "checkpoint",
          "{}/{}: files are missing or of another size: it is passed over, {} is taken", directory,
          name, taken);
    }
  }
}

}  // namespace

std::optional<std::string> find_latest_checkpoint(const std::string& given) {
  const std::string directory = without_slashes(given);
  const auto found = complete_checkpoints(directory);
  if (found.empty()) {
    return std::nullopt;
  }
  const auto& [step, path] = found.back();
  warn_of_damaged_after(step, directory, path);
  return path;
}

std::optional<std::string> find_checkpoint_before(const std::string& given) {
  const std::string path = without_slashes(given);
  const auto step = step_of_directory_name(last_name_of(path));
  std::optional<std::string> before;
  if (step) {
    for (const auto& [other, name] : complete_checkpoints(parent_of(path))) {
      before = other < *step ? name : before;
    }
  }
  return before;
}

void keep_last_checkpoints(const std::string& given, int64_t count) {
  const std::string path = without_slashes(given);
  auto found = complete_checkpoints(parent_of(path));
  if (const auto step = step_of_directory_name(last_name_of(path))) {
    const auto later = std::find_if(found.begin(), found.end(),
                                    [&](const auto& entry) { return entry.first > *step; });
    if (later != found.end()) {
      log(LogLevel::kWarning, "checkpoint",
          "{}: {} is of a later step: it stays and counts as the latest; move it away if this run "
          "takes its place",
          path, found.back().second);
      found.erase(later, found.end());
    }
  }
  for (int64_t i = 0; i + count < static_cast<int64_t>(found.size()); ++i) {
    const std::string& oldest = found[static_cast<size_t>(i)].second;
    if (last_name_of(oldest) != last_name_of(path)) {  // a step may stand there under two names
      remove_leftover(oldest);
    }
  }
}

}  // namespace fsdp2::ckpt
