#include "core/ckpt/torch/detect.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "core/base/text.h"

namespace fsdp2::ckpt {

namespace {

constexpr std::string_view kZipBegin("PK\x03\x04", 4);
constexpr std::string_view kOldTorchSaveBegin("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9", 9);
static_assert(kOldTorchSaveBegin.size() <= PathContent::kBeginBytes);

}  // namespace

bool is_torch_file(const PathContent& content) { return starts_with(content.begin(), kZipBegin); }

bool is_old_torch_file(const PathContent& content) {
  return starts_with(content.begin(), kOldTorchSaveBegin);
}

bool is_per_rank_directory(const PathContent& content) { return content.has_name(is_per_rank_pth); }

bool is_per_rank_pth(const std::string& name) {
  return starts_with(name, "fsdp_sharded_cpt") && name.find("_rank") != std::string::npos &&
         ends_with(name, ".pth");
}

bool names_torch_file(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  constexpr std::array kTorch = {".pth", ".pt", ".bin"};
  return std::find(kTorch.begin(), kTorch.end(), extension) != kTorch.end();
}

}  // namespace fsdp2::ckpt
