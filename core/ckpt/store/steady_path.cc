#include "core/ckpt/store/steady_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace fsdp2::ckpt {

SteadyPath::SteadyPath(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_PATH | O_CLOEXEC)) {}

SteadyPath::~SteadyPath() {
  if (file_ >= 0) {
    ::close(file_);
  }
}

void SteadyPath::check() const {
  struct stat before;
  if (file_ < 0 || ::fstat(file_, &before) != 0) {
    return;
  }
  struct stat now;
  const bool same = ::stat(path_.c_str(), &now) == 0 && now.st_dev == before.st_dev &&
                    now.st_ino == before.st_ino;
  FSDP2_CHECK(same, Code::kIo,
              "{}: was replaced or removed while it was read, as a save does: read it again",
              path_);
}

}  // namespace fsdp2::ckpt
