#include "core/ckpt/torch/pending_rank_files.h"

#include <fcntl.h>
#include <fmt/format.h>
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
#include "core/ckpt/torch/per_rank_files.h"

namespace fsdp2::ckpt {

namespace {

// What comes to the place meanwhile is not replaced.
Replaceable nothing_is_replaced() {
  return {"a directory of torch.save files of each rank", [](const std::string&) { return false; }};
}

[[noreturn]] void fail_to_rename(const std::string& path, int error) {
  throw Error(
      Code::kIo,
      fmt::format("{}: cannot rename what is finished to it: {}", path, system_error_text(error)),
      error);
}

dev_t device_of(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 ? status.st_dev : 0;
}

bool exchange(const std::string& a, const std::string& b) {
  return ::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

// Whether it can be taken back: what was at the target is at `from` then, unless the file system
// cannot exchange names.
bool move(const std::string& from, const std::string& target) {
  const bool is_there = path_exists(target);
  if (is_there && exchange(from, target)) {
    return true;
  }
  if (::rename(from.c_str(), target.c_str()) != 0) {
    fail_to_rename(target, errno);
  }
  return !is_there;
}

// As far as it can.
void move_back(const std::string& from, const std::string& target) {
  if (path_exists(from)) {
    static_cast<void>(exchange(from, target));
  } else {
    static_cast<void>(::rename(target.c_str(), from.c_str()));
  }
}

void check_is_directory(const std::string& path) {
  std::error_code error;
  FSDP2_CHECK(std::filesystem::is_directory(path, error), Code::kIo,
              "{}: is a file, or a symbolic link to nothing; expected a directory or nothing",
              path);
}

}  // namespace

PendingRankFiles::PendingRankFiles(const std::string& directory, int64_t step, int ranks)
    : directory_(without_slashes(directory)),
      step_(step),
      ranks_(ranks),
      becomes_all_(!path_exists(directory_)) {
  if (becomes_all_) {
    pending_.emplace(directory_, nothing_is_replaced());
    return;
  }
  check_is_directory(directory_);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string target = final_path(rank);
    FSDP2_CHECK(device_of(parent_of(target)) == device_of(directory_), Code::kIo,
                "{}/{}: is a link to another file system, where no file can be moved to: remove it",
                directory_, per_rank_file_name(step, rank));
  }
  pending_.emplace(fmt::format("{}/fsdp_sharded_cpt{}", directory_, step), nothing_is_replaced());
}

std::string PendingRankFiles::file(int rank) const {
  return pending_->path() + "/" + per_rank_file_name(step_, rank);
}

std::string PendingRankFiles::final_path(int rank) const {
  return resolve_file(directory_ + "/" + per_rank_file_name(step_, rank));
}

// False: something is there by now, which a rename leaves as it is.
bool PendingRankFiles::put_directory_in_place() const {
  sync_directory(pending_->path());
  if (::rename(pending_->path().c_str(), directory_.c_str()) == 0) {
    sync_directory(parent_of(directory_));
    return true;
  }
  if (errno != ENOTEMPTY && errno != EEXIST) {
    fail_to_rename(directory_, errno);
  }
  return false;
}

void PendingRankFiles::put_files_in_place() const {
  std::vector<std::pair<std::string, std::string>> moved;
  try {
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::string target = final_path(rank);
      if (move(file(rank), target)) {
        moved.emplace_back(file(rank), target);
      }
    }
  } catch (const Error&) {
    for (auto each = moved.rbegin(); each != moved.rend(); ++each) {
      move_back(each->first, each->second);
    }
    throw;
  }
  sync_directory(directory_);
}

void PendingRankFiles::commit() {
  if (becomes_all_ && put_directory_in_place()) {
    return;
  }
  put_files_in_place();
  remove_further_ranks(directory_, step_, ranks_);
}

}  // namespace fsdp2::ckpt
