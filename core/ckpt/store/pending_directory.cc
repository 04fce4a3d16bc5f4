#include "core/ckpt/store/pending_directory.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/temporary_name.h"
#include "core/base/text.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "core/ckpt/store/directory_names.h"
#include "core/ckpt/store/series_claim.h"
#include "core/ckpt/store/storage_path.h"

namespace fsdp2::ckpt {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_on(const std::string& path, const char* action, int error) {
  throw Error(Code::kIo, fmt::format("{}: cannot {}: {}", path, action, system_error_text(error)),
              error);
}

// A link goes on pointing to where it does; "." has no name to be renamed by.
std::string resolve_target(const std::string& given) {
  const std::string path = without_slashes(given);
  const std::string name = last_name_of(path);
  std::error_code error;
  if (!fs::is_symlink(path, error) && name != "." && name != "..") {
    return path;
  }
  const fs::path target = fs::canonical(path, error);
  FSDP2_CHECK(!error, Code::kIo, "{}: cannot find what this symbolic link points to: {}", path,
              error.message());
  return target.string();
}

// A file with which a series, or a run that is over, says what is its own.
bool is_claim(const std::string& directory, const std::string& name) {
  return name == kSeriesClaimFile ||
         (starts_with(name, ".fsdp2-") && !is_locked(directory + "/" + name));
}

// The names in a directory that are not of such a checkpoint.
std::vector<std::string> foreign_names(const std::string& directory, const Replaceable& what) {
  std::vector<std::string> foreign;
  for (const std::string& name : names_in(directory)) {
    std::error_code error;
    const bool is_directory = fs::is_directory(fs::symlink_status(directory + "/" + name, error));
    if (is_directory || (!what.is_ours(name) && !is_claim(directory, name))) {
      foreign.push_back(name);
    }
  }
  return foreign;
}

void check_resolved(const std::string& path, const Replaceable& what) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) {
    return;
  }
  FSDP2_CHECK(S_ISDIR(status.st_mode), Code::kIo, "{}: is a file, expected a directory or nothing",
              path);
  struct stat above;
  FSDP2_CHECK(::stat((path + "/..").c_str(), &above) != 0 ||
                  (above.st_dev == status.st_dev && above.st_ino != status.st_ino),
              Code::kIo,
              "{}: is where a file system is mounted, and cannot be replaced: name a directory in "
              "it",
              path);
  if (!what.is_ours) {
    return;
  }
  const std::vector<std::string> foreign = foreign_names(path, what);
  if (!foreign.empty()) {
    const std::string more =
        foreign.size() > 1 ? fmt::format(" and {} more", foreign.size() - 1) : "";
    throw Error(Code::kIo,
                fmt::format("{}: has {}{} in it, not of {}, which would be lost when it is "
                            "replaced: name a new directory, or one inside it",
                            path, foreign.front(), more, what.format),
                ENOTEMPTY);
  }
}

// Whether a name is one that a job left which died while it wrote `path_name`, or, of a series of
// steps, any of them.
bool is_leftover(const std::string& name, const std::string& path_name) {
  const std::string owner = name.substr(0, name.find(kTemporary));
  return owner.size() < name.size() && (owner == path_name || (step_of_directory_name(owner) &&
                                                               step_of_directory_name(path_name)));
}

void rename_or_fail(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail_on(to, "rename the finished checkpoint to it", errno);
  }
}

// Both names keep existing throughout. False if the file system cannot do it.
bool exchange_names(const std::string& a, const std::string& b) {
  if (::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) {
    return true;
  }
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
    fail_on(b, "exchange the finished checkpoint with it", errno);
  }
  return false;
}

}  // namespace

void check_replaceable(const std::string& path, const Replaceable& what) {
  check_storage_path(path);
  check_resolved(resolve_target(path), what);
}

PendingDirectory::PendingDirectory(const std::string& target, Replaceable replaceable)
    : replaceable_(std::move(replaceable)) {
  check_storage_path(target);
  target_ = resolve_target(target);
  const std::string parent = parent_of(target_);
  make_directories(parent);
  check_resolved(target_, replaceable_);
  for (const std::string& name : names_in(parent)) {
    if (is_leftover(name, last_name_of(target_)) && !is_locked(parent + "/" + name)) {
      remove_leftover(parent + "/" + name);
    }
  }
  const std::string path = beside(target_, kTemporary);
  if (::mkdir(path.c_str(), 0777) != 0) {
    fail_on(path, "make the directory", errno);
  }
  path_ = path;
  lock_.take(path_);
}

PendingDirectory::~PendingDirectory() {
  if (lock_.is_of_parent()) {
    return;  // a fork has copied this one, but not what is on disk
  }
  if (!path_.empty()) {
    remove_leftover(path_);
  }
  if (!replaced_.empty()) {
    remove_leftover(replaced_);
  }
  if (is_committed_) {
    remove_moved_aside();
  }
}

// Afterwards the old one, if there was any, is at *old.
void PendingDirectory::put_in_place(std::string* old) {
  if (!path_exists(target_)) {
    rename_or_fail(path_, target_);
    return;
  }
  if (exchange_names(path_, target_)) {
    *old = path_;
    return;
  }
  const std::string aside = beside(target_, kMovedAside);
  rename_or_fail(target_, aside);
  try {
    sync_directory(parent_of(target_));  // else a crash could keep neither name
    rename_or_fail(path_, target_);
  } catch (const Error&) {
    if (::rename(aside.c_str(), target_.c_str()) != 0) {
      log(LogLevel::kError, "checkpoint", "{}: cannot be put back: {}: it is found at {}", target_,
          system_error_text(errno), aside);
    }
    throw;
  }
  *old = aside;
}

// After put_in_place. What cannot be put back is not removed either.
void PendingDirectory::put_back(const std::string& old) {
  const std::string path = std::exchange(path_, "");
  bool is_back = false;
  if (old == path) {
    is_back = exchange_names(path, target_);
  } else {
    is_back = ::rename(target_.c_str(), path.c_str()) == 0 &&
              (old.empty() || ::rename(old.c_str(), target_.c_str()) == 0);
  }
  FSDP2_CHECK(is_back, Code::kIo, "{}: is the new checkpoint, but cannot be synced to disk{}",
              target_, old.empty() ? "" : "; the old one is at " + old);
  path_ = path;
}

// Removes what earlier replacements left and nobody looks for any more.
void PendingDirectory::remove_moved_aside() const noexcept {
  try {
    const std::string parent = parent_of(target_);
    for (const std::string& name : names_in(parent)) {
      if (starts_with(name, last_name_of(target_) + kMovedAside)) {
        remove_leftover(parent + "/" + name);
      }
    }
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, "checkpoint", "{}", error.what());
  }
}

void PendingDirectory::commit() {
  check_resolved(target_, replaceable_);  // it may have come while this one was written
  sync_directory(path_);
  std::string old;
  put_in_place(&old);
  try {
    sync_directory(parent_of(target_));
  } catch (const Error&) {
    put_back(old);
    throw;
  }
  path_.clear();
  replaced_ = old;
  is_committed_ = true;
}

}  // namespace fsdp2::ckpt
