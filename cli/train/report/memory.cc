#include "cli/train/report/memory.h"

#include <malloc.h>

#include <algorithm>
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

namespace {

int64_t g_peak_before = 0;  // of the main thread

}  // namespace

int64_t peak_rss() { return std::max(g_peak_before, status_bytes("VmHWM")); }

int64_t begin_peak_rss() {
  g_peak_before = peak_rss();
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
  return status_bytes("VmRSS");
}

int64_t peak_rss_since_begin() { return status_bytes("VmHWM"); }

}  // namespace fsdp2::cli
