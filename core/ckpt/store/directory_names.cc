#include "core/ckpt/store/directory_names.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <new>
#include <random>
#include <system_error>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/temporary_name.h"

namespace fsdp2::ckpt {

namespace fs = std::filesystem;

std::string beside(const std::string& path, const char* kind) {
  std::random_device random;
  return fmt::format("{}{}{}{:08x}", path, kind, process_mark(::getpid()), random());
}

void make_directories(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return;
  }
  const std::string parent = parent_of(path);
  if (parent != path) {
    make_directories(parent);
  }
  if (::mkdir(path.c_str(), 0777) != 0) {
    const int reason = errno == EEXIST ? ENOTDIR : errno;
    if (!fs::is_directory(path, error)) {  // else another rank has made it
      throw Error(Code::kIo,
                  fmt::format("{}: cannot make the directory: {}", path, system_error_text(reason)),
                  reason);
    }
  }
  sync_directory(parent);
}

namespace {

void remove_or_warn(const std::string& path) {
  try {
    // Under a temporary name first, so that it is at no moment a checkpoint with files missing.
    std::string doomed = path;
    if (last_name_of(path).find(kTemporary) == std::string::npos) {
      doomed = beside(path, kTemporary);
      if (::rename(path.c_str(), doomed.c_str()) != 0) {
        log(LogLevel::kWarning, "checkpoint", "{}: cannot remove: {}", path,
            std::error_code(errno, std::generic_category()).message());
        return;
      }
    }
    std::error_code error;
    fs::remove_all(doomed, error);
    if (error) {
      log(LogLevel::kWarning, "checkpoint", "{}: cannot remove: {}", doomed, error.message());
    }
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, "checkpoint", "{}: cannot remove: {}", path, error.what());
  }
}

}  // namespace

void remove_leftover(const std::string& path) noexcept {
  try {
    remove_or_warn(path);
  } catch (const std::bad_alloc&) {
    // There is no memory for a warning either. What is left goes with the next save.
  }
}

}  // namespace fsdp2::ckpt
