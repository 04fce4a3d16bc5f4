#include "core/ckpt/store/find_checkpoint.h"

#include <filesystem>
#include <system_error>

#include "core/ckpt/store/checkpoint_directory.h"

namespace fsdp2::ckpt {

namespace {

// Trainers write all of a run into it, beside the model alone.
constexpr char kRunDirectory[] = "dcp";

}  // namespace

std::string find_checkpoint(const std::string& given) {
  const std::string path = resolve_checkpoint(given);
  std::error_code error;
  if (!std::filesystem::is_directory(path, error) ||
      std::filesystem::exists(path + "/.metadata", error)) {
    return path;
  }
  if (std::filesystem::exists(path + "/" + kRunDirectory + "/.metadata", error)) {
    return path + "/" + kRunDirectory;
  }
  return find_latest_checkpoint(path).value_or(path);
}

}  // namespace fsdp2::ckpt
