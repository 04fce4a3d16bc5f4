// What a job needs of the machine, apart from its libraries.
#pragma once

#include "cli/doctor/finding.h"

namespace fsdp2::cli {

// Shared memory, ports, the name service, the clock.
Findings look_at_machine();

// Cores, memory, and how much of them and of other things a process may have.
Findings look_at_limits();

}  // namespace fsdp2::cli
