#include "cli/train/report/memory.h"

#include <fstream>
#include <sstream>

namespace fsdp2::cli {

int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key + ":", 0) == 0) {
      int64_t kib = 0;
      std::istringstream(line.substr(key.size() + 1)) >> kib;
      return kib * 1024;
    }
  }
  return 0;
}

}  // namespace fsdp2::cli
