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

void HuggingFaceDirectory::read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
                                at::Tensor out) {
  read_rows(weights_.file_of(name), weights_.entry(name), shape, kConfig, first_row, out);
}

}  // namespace fsdp2::ckpt
