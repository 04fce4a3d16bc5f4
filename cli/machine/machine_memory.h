// What memory this machine, and the control group that a container is, still have.
#pragma once

#include <string>

namespace fsdp2::cli {

struct MachineMemory {
  double total = 0, available = 0;  // of the machine, in bytes
  double used = 0;                  // by the control group, without files that nobody uses
  double most = 0;                  // that the control group may use; infinity: no limit
  bool is_limited() const { return most < total; }
  // What processes may still take.
  double free() const;
};

constexpr char kControlGroups[] = "/sys/fs/cgroup";

MachineMemory machine_memory(const std::string& groups = kControlGroups);

// The first number in a file of the control group, by its name in the second or the first version
// of these; infinity where there is none.
double control_group_number(const std::string& newer, const std::string& older,
                            const std::string& groups = kControlGroups);

}  // namespace fsdp2::cli
