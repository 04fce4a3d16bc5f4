#include "cli/tokenize/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/library.h"

namespace fsdp2::cli {

namespace {

constexpr int64_t kLargestUint16Vocabulary = int64_t{1} << 16;

// A symbolic link stands for what it points to.
std::string followed(std::string path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) {
    return path;
  }
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  if (error) {
    throw Failure("--out " + path +
                  ": cannot find what this symbolic link points to: " + error.message());
  }
  return target.string();
}

bool sync(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool is_synced = file >= 0 && ::fsync(file) == 0;
  if (file >= 0) {
    ::close(file);
  }
  return is_synced;
}

}  // namespace

TokenWriter::TokenWriter(std::string path, int64_t vocab_size)
    : path_(followed(std::move(path))),
      unfinished_(path_ + ".tmp-" + std::to_string(::getpid())),
      bytes_per_token_(vocab_size <= kLargestUint16Vocabulary ? 2 : 4) {
  std::error_code error;
  if (std::filesystem::exists(path_, error) && !std::filesystem::is_regular_file(path_, error)) {
    throw Failure("--out " + path_ + ": is not a regular file, which a token file could replace");
  }
  file_.open(unfinished_, std::ios::binary | std::ios::trunc);
  if (!file_) {
    fail("cannot be written");
  }
}

TokenWriter::~TokenWriter() {
  if (!is_committed_) {
    std::remove(unfinished_.c_str());
  }
}

void TokenWriter::fail(const std::string& what) const {
  throw Failure("--out " + path_ + ": " + what + ": " + std::strerror(errno));
}

void TokenWriter::add(const std::vector<int64_t>& tokens) {
  std::string bytes;
  bytes.reserve(tokens.size() * static_cast<size_t>(bytes_per_token_));
  for (const int64_t token : tokens) {
    for (int i = 0; i < bytes_per_token_; ++i) {
      bytes += static_cast<char>(token >> (8 * i) & 0xFF);
    }
  }
  if (!file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    fail("cannot be written");
  }
  count_ += static_cast<int64_t>(tokens.size());
}

void TokenWriter::commit() {
  file_.close();
  if (!file_ || !sync(unfinished_) || std::rename(unfinished_.c_str(), path_.c_str()) != 0) {
    fail("cannot be written");
  }
  is_committed_ = true;
}

}  // namespace fsdp2::cli
