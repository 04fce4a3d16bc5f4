// Who this rank is and where the ranks meet: WorldOptions, completed by what a launcher has left in
// the environment. Opens nothing.
//
// Variables are read in this order: RANK, WORLD_SIZE, LOCAL_RANK (torchrun, `fsdp2 run`,
// Kubernetes), Open MPI's OMPI_COMM_WORLD_*, Slurm's SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID
// (mpirun inside a Slurm allocation sees both). The meeting point is MASTER_ADDR:MASTER_PORT,
// whatever the launcher. Without them, under Slurm, it is the first node of the step, with a port
// made from the numbers of job and step.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/comm/meet/world_options.h"

namespace fsdp2 {

enum class Meeting { kNowhere, kTcp, kFile, kThreads, kFake };

struct Place {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  Meeting meeting = Meeting::kNowhere;  // a world of one rank meets nobody
  std::string where;                    // host, path or name
  uint16_t port = 0;
  bool launcher_hosts_store = false;  // torchrun's agent listens at the port, so no rank does
  std::string key_prefix;             // keeps the attempts of an elastic job apart
};

// The value of an environment variable, or nullopt if it is unset.
using Environment = std::function<std::optional<std::string>(const char* name)>;

Environment process_environment();

// Errors: kInvalidArgument, which names the variable or option and its value.
Place find_place(const WorldOptions& options, const Environment& environment);

}  // namespace fsdp2
