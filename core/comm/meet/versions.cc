#include "core/comm/meet/versions.h"

#include <fmt/format.h>
#include <torch/headeronly/version.h>

namespace fsdp2 {

std::string own_versions() {
  return fmt::format("libfsdp2 {} with LibTorch {}.{}.{}", FSDP2_VERSION, TORCH_VERSION_MAJOR,
                     TORCH_VERSION_MINOR, TORCH_VERSION_PATCH);
}

}  // namespace fsdp2
