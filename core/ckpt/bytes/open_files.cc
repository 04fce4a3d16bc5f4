#include "core/ckpt/bytes/open_files.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace fsdp2::ckpt {

std::shared_ptr<const MappedFile> OpenFiles::open(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find_if(recent_.begin(), recent_.end(),
                                  [&](const auto& file) { return file->path() == path; });
  if (found != recent_.end()) {
    recent_.splice(recent_.begin(), recent_, found);
    return recent_.front();
  }
  while (recent_.size() >= kMost) {
    recent_.pop_back();
  }
  recent_.push_front(std::make_shared<const MappedFile>(path));
  return recent_.front();
}

RecentFileBytes::RecentFileBytes(std::shared_ptr<OpenFiles> files, std::string path)
    : files_(std::move(files)), path_(std::move(path)), size_(files_->open(path_)->size()) {}

void RecentFileBytes::read(int64_t offset, int64_t count, void* out) const {
  const auto file = files_->open(path_);
  FSDP2_CHECK(file->size() == size_, Code::kIo,
              "{}: had {} bytes when it was opened and now has {}", path_, size_, file->size());
  file->read(offset, count, out);
}

}  // namespace fsdp2::ckpt
