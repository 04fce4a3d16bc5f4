#include "core/base/temporary_name.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <vector>

namespace fsdp2 {

namespace {

namespace fs = std::filesystem;

void remove_names_with(const std::string& part, const fs::path& directory, bool at_begin) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const size_t place = at->path().filename().string().find(part);
    if (at_begin ? place == 0 : place != std::string::npos) {
      found.push_back(at->path());
    }
  }
  for (const fs::path& path : found) {
    if (!is_locked(path.string())) {
      fs::remove_all(path, error);
    }
  }
}

}  // namespace

bool is_locked(const std::string& path) noexcept {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    return false;
  }
  const bool locked = ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return locked;
}

std::string process_mark(pid_t process) {
  std::ostringstream mark;
  mark << std::hex << process << '-';
  return mark.str();
}

void remove_temporaries(const std::string& given, pid_t process) noexcept {
  try {
    std::error_code error;
    fs::path path = given;
    while (path.has_parent_path() && path.filename().empty()) {
      path = path.parent_path();  // of "out/"
    }
    const bool is_named = path.filename() != "." && path.filename() != "..";
    if (fs::is_symlink(path, error) || !is_named) {
      const fs::path target = fs::canonical(path, error);
      path = error ? path : target;
    }
    const std::string mark = kTemporary + process_mark(process);
    const fs::path parent = path.parent_path();
    remove_names_with(path.filename().string() + mark, parent.empty() ? "." : parent, true);
    if (fs::is_directory(path, error)) {
      remove_names_with(mark, path, false);
    }
  } catch (const std::exception&) {  // no memory: what is left looks like nothing whole
  }
}

}  // namespace fsdp2
