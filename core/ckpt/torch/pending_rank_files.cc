#include "core/ckpt/torch/pending_rank_files.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

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
    resolve_file(directory_ + "/" + per_rank_file_name(step, rank));
  }
  pending_.emplace(fmt::format("{}/fsdp_sharded_cpt{}", directory_, step), nothing_is_replaced());
}

std::string PendingRankFiles::file(int rank) const {
  return pending_->path() + "/" + per_rank_file_name(step_, rank);
}

void PendingRankFiles::commit() {
  if (becomes_all_) {
    pending_->commit();
    return;
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::string target = resolve_file(directory_ + "/" + per_rank_file_name(step_, rank));
    if (std::rename(file(rank).c_str(), target.c_str()) != 0) {
      const int error = errno;
      throw Error(Code::kIo,
                  fmt::format("{}: cannot rename the finished file to it: {}", target,
                              system_error_text(error)),
                  error);
    }
  }
  sync_directory(directory_);
  remove_further_ranks(directory_, step_, ranks_);
}

}  // namespace fsdp2::ckpt
