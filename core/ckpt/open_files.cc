#include "core/ckpt/open_files.h"

#include <algorithm>

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

}  // namespace fsdp2::ckpt
