#include "cli/train/metrics/append.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/library.h"

namespace fsdp2::cli {

void append(int file, std::string_view bytes, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t n = write(file, bytes.data(), bytes.size());
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      throw Failure(what + ": " + std::strerror(errno));
    }
  }
}

}  // namespace fsdp2::cli
