#include "core/base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "core/base/blocked_signal.h"
#include "core/base/error.h"
#include "core/base/temporary_name.h"

namespace fsdp2 {

namespace {

// What one read or write call is asked for; Linux moves at most 2 GiB a call.
constexpr size_t kLargestTransfer = size_t{1} << 30;

[[noreturn]] void fail_on_file(const std::string& path, const char* action, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR;
  throw Error(missing ? Code::kNotFound : Code::kIo,
              fmt::format("{}: cannot {}: {}", path, action, system_error_text(error)), error);
}

// Closes on every way out.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

int64_t size_of(int file, const std::string& path) {
  struct stat status;
  if (::fstat(file, &status) != 0) {
    fail_on_file(path, "read its size", errno);
  }
  return status.st_size;
}

int open_regular_file(const std::string& path) {
  // Without O_NONBLOCK opening a pipe would wait for a writer.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    fail_on_file(path, "open", errno);
  }
  struct stat status;
  if (::fstat(file.get(), &status) != 0) {
    fail_on_file(path, "read its type", errno);
  }
  FSDP2_CHECK(S_ISREG(status.st_mode), Code::kIo, "{}: expected a regular file, found {}", path,
              S_ISDIR(status.st_mode) ? "a directory" : "something else");
  return file.release();
}

void read_at(int file, const std::string& path, int64_t offset, int64_t count, void* out) {
  char* target = static_cast<char*>(out);
  int64_t done = 0;
  while (done < count) {
    const size_t part = std::min(static_cast<size_t>(count - done), kLargestTransfer);
    const ssize_t got = ::pread(file, target + done, part, offset + done);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      fail_on_file(path, "read", errno);
    }
    FSDP2_CHECK(got > 0, Code::kIo,
                "{}: ends at byte {}, expected {} bytes from {} on: the file was cut while in use",
                path, offset + done, count, offset);
    done += got;
  }
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) {
    return ".";
  }
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Differs between processes, hosts that share a directory, and calls.
std::string temporary_beside(const std::string& path) {
  static std::atomic<uint32_t> calls{0};
  std::random_device random;
  return fmt::format("{}{}{}{:x}-{:08x}", path, kTemporary, process_mark(::getpid()),
                     calls.fetch_add(1), random());
}

}  // namespace

std::string system_error_text(int error) {
  char buffer[256];
  return ::strerror_r(error, buffer, sizeof buffer);
}

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  Descriptor file(open_regular_file(path_));
  size_ = size_of(file.get(), path_);
  if (size_ > 0) {  // mapping nothing is an error
    void* data = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, file.get(), 0);
    if (data == MAP_FAILED) {
      fail_on_file(path_, "map", errno);
    }
    data_ = static_cast<const uint8_t*>(data);
  }
  file_ = file.release();
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      size_(std::exchange(other.size_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
  }
  if (file_ >= 0) {
    ::close(file_);
  }
}

void MappedFile::check_size() const {
  const int64_t now = size_of(file_, path_);
  FSDP2_CHECK(now >= size_, Code::kIo, "{}: had {} bytes when it was opened and now has {}", path_,
              size_, now);
}

void MappedFile::read(int64_t offset, int64_t count, void* out) const {
  FSDP2_CHECK(offset >= 0 && count >= 0 && offset <= size_ && count <= size_ - offset,
              Code::kInternal, "{}: read of {} bytes at {} in a file of {}", path_, count, offset,
              size_);
  read_at(file_, path_, offset, count, out);
}

std::string read_text_file(const std::string& path, int64_t max_bytes) {
  const Descriptor file(open_regular_file(path));
  const int64_t size = size_of(file.get(), path);
  FSDP2_CHECK(size <= max_bytes, Code::kIo, "{}: has {} bytes, at most {} are accepted", path, size,
              max_bytes);
  std::string text(static_cast<size_t>(size), '\0');
  read_at(file.get(), path, 0, size, text.data());
  return text;
}

std::string resolve_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) {
    return path;
  }
  const fs::path target = fs::is_symlink(path, error) ? fs::canonical(path, error) : fs::path(path);
  FSDP2_CHECK(!error, Code::kIo, "{}: cannot find what this symbolic link points to: {}", path,
              error.message());
  FSDP2_CHECK(fs::is_regular_file(target, error), Code::kIo,
              "{}: is {}, expected a file or nothing", path,
              fs::is_directory(target, error) ? "a directory" : "a device, a pipe or a socket");
  return target.string();
}

AtomicFile::AtomicFile(const std::string& path) : path_(resolve_file(path)) {
  do {
    temporary_ = temporary_beside(path_);
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file_ < 0 && (errno == EEXIST || errno == EINTR));
  if (file_ < 0) {
    const int error = errno;
    temporary_.clear();
    fail_on_file(path_, "create", error);
  }
  // For remove_temporaries, where the file system has locks.
  static_cast<void>(::flock(file_, LOCK_EX | LOCK_NB));
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (file_ >= 0) {
    ::close(std::exchange(file_, -1));
  }
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    temporary_.clear();
  }
}

void AtomicFile::fail_and_discard(const char* action, int error) {
  discard();
  fail_on_file(path_, action, error);
}

void AtomicFile::write(const void* data, size_t count) {
  FSDP2_CHECK(file_ >= 0, Code::kWrongState,
              "{}: written to after it was committed or had an error", path_);
  const BlockedSignal guard(SIGXFSZ);
  const char* source = static_cast<const char*>(data);
  size_t done = 0;
  while (done < count) {
    const ssize_t put = ::write(file_, source + done, std::min(count - done, kLargestTransfer));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put < 0) {
      const int error = errno;
      const std::string action = fmt::format("write {} bytes at {}", count - done, bytes_written_);
      fail_and_discard(action.c_str(), error);
    }
    done += static_cast<size_t>(put);
    bytes_written_ += put;
  }
}

void AtomicFile::overwrite(int64_t offset, const void* data, size_t count) {
  FSDP2_CHECK(file_ >= 0, Code::kWrongState,
              "{}: written to after it was committed or had an error", path_);
  FSDP2_CHECK(offset >= 0 && offset <= bytes_written_ &&
                  count <= static_cast<size_t>(bytes_written_ - offset),
              Code::kInternal, "{}: {} bytes at {} of {} written are to be replaced", path_, count,
              offset, bytes_written_);
  const char* source = static_cast<const char*>(data);
  for (size_t done = 0; done < count;) {
    const ssize_t put = ::pwrite(file_, source + done, std::min(count - done, kLargestTransfer),
                                 offset + static_cast<int64_t>(done));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put < 0) {
      fail_and_discard("write to it again", errno);
    }
    done += static_cast<size_t>(put);
  }
}

void AtomicFile::commit() {
  FSDP2_CHECK(file_ >= 0, Code::kWrongState, "{}: committed after it was committed or had an error",
              path_);
  if (::fsync(file_) != 0) {
    fail_and_discard("sync to disk", errno);
  }
  // Network file systems may report a full disk only now.
  if (::close(std::exchange(file_, -1)) != 0) {
    fail_and_discard("close", errno);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail_and_discard("rename the finished file to it", errno);
  }
  temporary_.clear();
  sync_directory(directory_of(path_));
}

void sync_directory(const std::string& path) {
  const Descriptor directory(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
  if (directory.get() < 0) {
    fail_on_file(path, "open", errno);
  }
  // Some network file systems cannot sync a directory; there is nothing to be done about it.
  if (::fsync(directory.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    fail_on_file(path, "sync to disk", errno);
  }
}

}  // namespace fsdp2
