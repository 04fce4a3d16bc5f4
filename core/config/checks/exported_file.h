// The one place that says which file names mean a program of torch.export or TorchScript.
#pragma once

#include <filesystem>

namespace fsdp2::config {

inline bool is_exported_file(const std::filesystem::path& path) {
  return path.extension() == ".pt2" || path.extension() == ".pt";
}

}  // namespace fsdp2::config
