#include "cli/train/report/device_memory.h"

namespace fsdp2::cli {

std::optional<fsdp2_device_memory> memory_of_device(const Mesh& mesh) {
  fsdp2_device_memory memory{};
  memory.struct_size = sizeof(memory);
  const fsdp2_status status = fsdp2_mesh_get_device_memory(mesh.get(), &memory);
  if (status == FSDP2_E_UNSUPPORTED) {
    return std::nullopt;
  }
  check(status);
  return memory;
}

}  // namespace fsdp2::cli
