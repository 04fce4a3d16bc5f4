#include "core/ckpt/hugging_face/hugging_face_directory.h"

#include <cstdint>

#include "core/base/file.h"
#include "core/ckpt/safetensors/rows.h"

namespace fsdp2::ckpt {

namespace {

constexpr char kConfig[] = "config.json";
constexpr int64_t kMaxConfigBytes = int64_t{1} << 24;

}  // namespace

HuggingFaceDirectory::HuggingFaceDirectory(const std::string& path)
    : path_(find_model_directory(path)),
      config_json_(read_text_file(path_ + "/" + kConfig, kMaxConfigBytes)),
      weights_(path_) {}

std::string HuggingFaceDirectory::stored_name(const std::string& name) const {
  const std::string without_body = name.substr(name.find('.') + 1);
  return !weights_.contains(name) && weights_.contains(without_body) ? without_body : name;
}

void HuggingFaceDirectory::read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
                                at::Tensor out) {
  const std::string stored = stored_name(name);
  read_rows(weights_.file_of(stored), weights_.entry(stored), shape, kConfig, first_row, out);
}

}  // namespace fsdp2::ckpt
