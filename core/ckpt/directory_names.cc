#include "core/ckpt/directory_names.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>

#include "core/base/error.h"
#include "core/base/log.h"

namespace fsdp2::ckpt {

namespace fs = std::filesystem;

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

std::string beside(const std::string& path, const char* kind) {
  std::random_device random;
  return fmt::format("{}{}{:x}-{:08x}", path, kind, ::getpid(), random());
}

void remove_leftover(const std::string& path) noexcept {
  try {
    // Under a temporary name first, so that it is at no moment a checkpoint with files missing.
    std::string doomed = path;
    if (name_of(path).find(kTemporary) == std::string::npos) {
      doomed = beside(path, kTemporary);
      if (::rename(path.c_str(), doomed.c_str()) != 0) {
        log(LogLevel::kWarning, "checkpoint", "{}: cannot remove: {}", path,
            std::error_code(errno, std::generic_category()).message());
        return;
      }
    }
    std::error_code error;
    fs::remove_all(doomed, error);
    if (error) {
      log(LogLevel::kWarning, "checkpoint", "{}: cannot remove: {}", doomed, error.message());
    }
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, "checkpoint", "{}: cannot remove: {}", path, error.what());
  }
}

}  // namespace fsdp2::ckpt
