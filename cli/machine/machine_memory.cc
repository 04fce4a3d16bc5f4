#include "cli/machine/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

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

// The part of the group's memory that holds files which nobody uses: the kernel gives it up for
// anything else.
double idle_cache_of_group(const std::string& groups) {
  for (const auto& [name, kind] : {std::make_pair("memory.stat", "inactive_file"),
                                   std::make_pair("memory/memory.stat", "total_inactive_file")}) {
    std::ifstream file(groups + "/" + name);
    std::string found;
    for (double bytes = 0; file >> found >> bytes;) {
      if (found == kind) {
        return bytes;
      }
    }
  }
  return 0;
}

}  // namespace

double control_group_number(const std::string& newer, const std::string& older,
                            const std::string& groups) {
  for (const std::string& name : {newer, older}) {
    std::ifstream file(groups + "/" + name);
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

MachineMemory machine_memory(const std::string& groups) {
  const double used =
      control_group_number("memory.current", "memory/memory.usage_in_bytes", groups);
  return {bytes_of_kind("MemTotal"), bytes_of_kind("MemAvailable"),
          std::max(0.0, used - idle_cache_of_group(groups)),
          control_group_number("memory.max", "memory/memory.limit_in_bytes", groups)};
}

}  // namespace fsdp2::cli
