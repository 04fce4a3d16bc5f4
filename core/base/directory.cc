#include "core/base/directory.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include "core/base/error.h"

namespace fsdp2 {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_to_list(const std::string& directory, int error) {
  const Code code = error == ENOENT   ? Code::kNotFound
                    : error == ENOMEM ? Code::kOutOfMemory
                                      : Code::kIo;
  fail(code, "{}: cannot list the directory: {}", directory,
       std::generic_category().message(error));
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

}  // namespace

// Not by std::filesystem, whose iterator ends the process where there is no memory for a name.
std::vector<std::string> names_in(const std::string& directory) {
  const std::unique_ptr<DIR, CloseDirectory> open(::opendir(directory.c_str()));
  if (open == nullptr) {
    refuse_to_list(directory, errno);
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") {
      names.emplace_back(name);
    }
    errno = 0;
  }
  if (errno != 0) {
    refuse_to_list(directory, errno);
  }
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
