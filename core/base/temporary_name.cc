#include "core/base/temporary_name.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/text_hash.h"

namespace fsdp2 {

namespace {

namespace fs = std::filesystem;

// What counts the numbers of processes: a container, or a machine since it was started.
uint32_t hash_of_counter() {
  std::string machine;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> machine;
  struct stat container{};
  ::stat("/proc/self/ns/pid", &container);
  return static_cast<uint32_t>(hash_of_text(machine + std::to_string(container.st_ino)));
}

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
  // Shared, which NFS has for what is open to read, and which others that ask may have, too.
  const bool locked = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return locked;
}

std::string process_mark(pid_t process) {
  std::ostringstream mark;
  mark << std::hex << process << '-' << hash_of_counter() << '-';
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
