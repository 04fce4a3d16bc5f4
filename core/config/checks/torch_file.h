// The one place that says which file names mean a file of torch.save.
#pragma once

#include <filesystem>

namespace fsdp2::config {

inline bool is_torch_file(const std::filesystem::path& path) {
  const std::filesystem::path extension = path.extension();
  return extension == ".pth" || extension == ".pt" || extension == ".bin";
}

}  // namespace fsdp2::config
