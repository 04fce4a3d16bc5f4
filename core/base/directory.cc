#include "core/base/directory.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/base/error.h"

namespace fsdp2 {

namespace fs = std::filesystem;

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

bool path_exists(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0;
}

bool target_exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

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

std::string last_name_of(const std::string& path) { return fs::path(path).filename().string(); }

}  // namespace fsdp2
