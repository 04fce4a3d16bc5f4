#include "core/ckpt/store/linked_copy.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/store/directory_names.h"

namespace fsdp2::ckpt {

namespace {

namespace fs = std::filesystem;

void need(const std::error_code& error, const std::string& path, const char* action) {
  if (error) {
    throw Error(Code::kIo, fmt::format("{}: cannot {}: {}", path, action, error.message()),
                error.value());
  }
}

void sync_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = file >= 0 && ::fsync(file) == 0;
  const int error = errno;
  if (file >= 0) {
    ::close(file);
  }
  need(synced ? std::error_code() : std::error_code(error, std::generic_category()), path,
       "sync to disk");
}

void link_file(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::create_hard_link(from, to, error);
  if (error) {
    error.clear();
    fs::copy_file(from, to, error);
    need(error, from, "copy into the new directory");
    sync_file(to);
  }
}

}  // namespace

void link_copy(const std::string& from, const std::string& to,
               const std::function<bool(const std::string& name)>& keeps) {
  for (const std::string& name : names_in(from)) {
    const std::string source = from + "/" + name;
    const std::string target = to + "/" + name;
    std::error_code error;
    const fs::file_status status = fs::symlink_status(source, error);
    need(error, source, "look at it");
    if (fs::is_directory(status)) {
      fs::create_directory(target, error);
      need(error, target, "make the directory");
      link_copy(source, target, [](const std::string&) { return true; });
    } else if (fs::is_symlink(status)) {
      if (keeps(name)) {
        fs::copy_symlink(source, target, error);
        need(error, source, "copy the symbolic link into the new directory");
      }
    } else if (keeps(name)) {
      FSDP2_CHECK(fs::is_regular_file(status), Code::kIo,
                  "{}: is neither a file nor a directory, and cannot be kept in the new one",
                  source);
      link_file(source, target);
    }
  }
  std::error_code error;
  const fs::perms mode = fs::status(from, error).permissions();
  need(error, from, "look at it");
  fs::permissions(to, mode, error);
  need(error, to, "set the mode");
  sync_directory(to);
}

}  // namespace fsdp2::ckpt
