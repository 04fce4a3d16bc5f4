#include "cli/train/metrics/run_lock.h"

#include <sys/file.h>

#include <cerrno>
#include <thread>

namespace fsdp2::cli {

bool lock_for_this_run(int file, std::chrono::seconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return true;
}

}  // namespace fsdp2::cli
