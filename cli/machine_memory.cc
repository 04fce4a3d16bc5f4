#include "cli/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace fsdp2::cli {

namespace {

double bytes_of_kind(const std::string& kind) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(kind + ":", 0) == 0) {
      double kib = 0;
      std::istringstream(line.substr(kind.size() + 1)) >> kib;
      return kib * 1024;
    }
  }
  return 0;
}

}  // namespace

double control_group_number(const std::string& newer, const std::string& older) {
  for (const std::string& path : {"/sys/fs/cgroup/" + newer, "/sys/fs/cgroup/" + older}) {
    std::ifstream file(path);
    double number = 0;
    if (file >> number) {
      return number;
    }
  }
  return std::numeric_limits<double>::infinity();
}

double MachineMemory::free() const {
  return is_limited() ? std::max(0.0, std::min(available, most - used)) : available;
}

MachineMemory machine_memory() {
  return {bytes_of_kind("MemTotal"), bytes_of_kind("MemAvailable"),
          control_group_number("memory.current", "memory/memory.usage_in_bytes"),
          control_group_number("memory.max", "memory/memory.limit_in_bytes")};
}

}  // namespace fsdp2::cli
