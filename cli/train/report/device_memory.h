// What a rank has of its GPU's memory.
#pragma once

#include <optional>

#include "cli/library.h"

namespace fsdp2::cli {

// The memory of the GPU that this rank computes on; nothing if that is the CPU.
std::optional<fsdp2_device_memory> memory_of_device(const Mesh& mesh);

}  // namespace fsdp2::cli
