// How a rank wants to join its job. What the options leave open comes from the environment.
#pragma once

#include <chrono>
#include <string>

namespace fsdp2 {

enum class BackendKind { kAuto, kGloo, kNccl, kThread, kFake };

struct WorldOptions {
  BackendKind backend = BackendKind::kAuto;
  // "" or "env://", "tcp://host:port", "file:///path", "thread://name", "fake://".
  // tcp, file and thread need an explicit rank and size (tcp and file also find them in the
  // environment). fake, which backend kFake implies, needs a size and ignores the environment. A
  // rank or size that contradicts the environment is an error under env:// only.
  std::string rendezvous;
  int rank = -1;        // -1: from the environment, else 0
  int world_size = -1;  // -1: from the environment, else 1
  int local_rank = -1;  // -1: from the environment, else rank
  std::chrono::milliseconds timeout{600000};
};

}  // namespace fsdp2
