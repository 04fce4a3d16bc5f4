#include "core/ckpt/dcp/item_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/blocked_signal.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/dcp/item_file.h"

namespace fsdp2::ckpt {

namespace {

// Checksums are taken of pieces that are still in the cache when they are written.
constexpr size_t kPiece = size_t{1} << 20;
// The disk starts on so many bytes while the next are prepared, soon on the first ones; else it
// would idle until the sync.
constexpr int64_t kFirstWriteBackBytes = int64_t{2} << 20;
constexpr int64_t kMostWriteBackBytes = int64_t{32} << 20;

[[noreturn]] void fail_on(const std::string& path, const std::string& action, int error) {
  throw Error(Code::kIo, fmt::format("{}: cannot {}: {}", path, action, system_error_text(error)),
              error);
}

}  // namespace

ItemWriter::ItemWriter(std::string path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0) {
    fail_on(
        path_,
        errno == ENOENT ? "create (do all ranks see the directory that rank 0 made?)" : "create it",
        errno);
  }
}

ItemWriter::~ItemWriter() {
  if (file_ >= 0) {
    ::close(file_);
  }
}

void ItemWriter::preallocate(int64_t bytes) {
  // Whatever else goes wrong, such as a file system that cannot, does not keep one from writing.
  if (bytes > 0 && ::fallocate(file_, FALLOC_FL_KEEP_SIZE, 0, bytes) != 0 && errno == ENOSPC) {
    fail_on(path_, fmt::format("reserve {} bytes of disk space", bytes), ENOSPC);
  }
}

WrittenItem ItemWriter::append(const std::function<void(const ByteSink& sink)>& write_item) {
  const int64_t offset = bytes_;
  write_item([this](const void* data, size_t count) { write(data, count); });
  return {offset, bytes_ - offset, sums_.finish()};
}

WrittenItem ItemWriter::append_tensor(const at::Tensor& chunk) {
  const bool small = static_cast<int64_t>(chunk.nbytes()) <= kBlockBytes;
  return append([&](const ByteSink& sink) { write_tensor_item(sink, chunk, small); });
}

void ItemWriter::write(const void* data, size_t count) {
  const BlockedSignal guard(SIGXFSZ);
  const auto* at = static_cast<const char*>(data);
  while (count > 0) {
    const size_t piece = std::min(count, kPiece);
    sums_.add(at, piece);
    for (size_t done = 0; done < piece;) {
      const ssize_t put = ::write(file_, at + done, piece - done);
      if (put < 0 && errno == EINTR) {
        continue;
      }
      if (put < 0) {
        fail_on(path_, fmt::format("write {} bytes at {}", piece - done, bytes_), errno);
      }
      done += static_cast<size_t>(put);
      bytes_ += put;
    }
    at += piece;
    count -= piece;
    start_writing_back();
  }
}

void ItemWriter::start_writing_back() {
  // As many again as it has already, within bounds.
  const int64_t enough = std::clamp(handed_to_disk_, kFirstWriteBackBytes, kMostWriteBackBytes);
  if (bytes_ - handed_to_disk_ >= enough) {
    // Only a hint: what goes wrong shows at the sync.
    static_cast<void>(
        ::sync_file_range(file_, handed_to_disk_, bytes_ - handed_to_disk_, SYNC_FILE_RANGE_WRITE));
    handed_to_disk_ = bytes_;
  }
}

void ItemWriter::finish() {
  if (::fsync(file_) != 0) {
    fail_on(path_, "sync to disk", errno);
  }
  if (::close(std::exchange(file_, -1)) != 0) {
    fail_on(path_, "close", errno);
  }
}

}  // namespace fsdp2::ckpt
