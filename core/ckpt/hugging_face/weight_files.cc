#include "core/ckpt/hugging_face/weight_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/ckpt/hugging_face/hugging_face_index.h"
#include "core/ckpt/hugging_face/model_files.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

constexpr char kWhole[] = "model.safetensors";
constexpr int64_t kMaxIndexBytes = int64_t{1} << 25;

}  // namespace

std::string find_model_directory(const std::string& given) {
  std::string path = resolve_checkpoint(given);
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  FSDP2_CHECK(status.type() != std::filesystem::file_type::not_found, Code::kNotFound,
              "{}: there is no such model directory", path);
  FSDP2_CHECK(!error, Code::kIo, "{}: cannot look at the model directory: {}", path,
              error.message());
  FSDP2_CHECK(std::filesystem::is_directory(status), Code::kNotFound,
              "{}: is a file, expected a model directory", path);
  return path;
}

WeightFiles::WeightFiles(std::string directory) : path_(std::move(directory)) {
  if (target_exists(path_ + "/" + kWhole)) {
    open_whole(path_ + "/" + kWhole);
  } else if (target_exists(path_ + "/" + kModelIndex)) {
    open_index(path_ + "/" + kModelIndex);
  } else {
    const bool has_pickle = target_exists(path_ + "/pytorch_model.bin") ||
                            target_exists(path_ + "/pytorch_model.bin.index.json");
    fail(Code::kNotFound, "{}: has neither {} nor {}{}", path_, kWhole, kModelIndex,
         has_pickle ? "; pytorch_model.bin is not read, save the model as safetensors" : "");
  }
  names_.reserve(tensors_.size());
  for (const auto& [name, location] : tensors_) {
    names_.push_back(name);
  }
  std::sort(names_.begin(), names_.end());
}

void WeightFiles::open_whole(const std::string& file_path) {
  files_.emplace_back(file_path);
  for (const SafetensorsEntry& entry : files_.back().tensors()) {
    tensors_.emplace(entry.name, Location{0, &entry});
  }
}

void WeightFiles::open_index(const std::string& index_path) {
  const auto shards =
      parse_hugging_face_index(read_text_file(index_path, kMaxIndexBytes), index_path);
  std::map<std::string, size_t> opened;
  for (const auto& [name, shard] : shards) {
    auto found = opened.find(shard);
    if (found == opened.end()) {
      const std::string shard_path = path_ + "/" + shard;
      FSDP2_CHECK(target_exists(shard_path), Code::kNotFound,
                  "{}: says that {} is in {}, but there is no such file", index_path,
                  printable_name(name), printable_name(shard));
      found = opened.emplace(shard, files_.size()).first;
      files_.emplace_back(shard_path);
    }
    const SafetensorsEntry* entry = files_[found->second].find(name);
    FSDP2_CHECK(entry != nullptr, Code::kCorruptData,
                "{}: says that {} is in {}, but that file has no such tensor", index_path,
                printable_name(name), printable_name(shard));
    // Entries stay where they are when files_ grows.
    tensors_.emplace(name, Location{found->second, entry});
  }
}

const WeightFiles::Location& WeightFiles::locate(const std::string& name) const {
  const auto found = tensors_.find(name);
  FSDP2_CHECK(found != tensors_.end(), Code::kNotFound, "{}: no tensor of this name is in {}",
              printable_name(name), files_.size() == 1 ? files_[0].path() : path_);
  return found->second;
}

const SafetensorsEntry& WeightFiles::entry(const std::string& name) const {
  return *locate(name).entry;
}

const SafetensorsFile& WeightFiles::file_of(const std::string& name) const {
  return files_[locate(name).file];
}

}  // namespace fsdp2::ckpt
