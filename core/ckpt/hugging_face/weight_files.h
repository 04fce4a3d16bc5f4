// The weights of a model directory: model.safetensors, or model.safetensors.index.json and the
// shards that it names. A config.json beside them is not looked at: directories that Python's
// HuggingFaceStorageWriter has written have none.
//
// Opening maps every file and checks its header, and that each tensor of the index is in the file
// that the index gives. With both model.safetensors and an index in the directory the first is
// taken, as transformers does. Immutable: any thread may read.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/ckpt/safetensors/safetensors_file.h"

namespace fsdp2::ckpt {

// Where the model directory `path` lies; see resolve_checkpoint. kNotFound if there is none, kIo.
std::string find_model_directory(const std::string& path);

class WeightFiles {
 public:
  // directory: of find_model_directory. Errors: kNotFound for missing weights or a missing shard;
  // kCorruptData for a truncated or malformed file, an index that does not fit its files, or a path
  // in it that leaves the directory; kUnsupported for a dtype that LibTorch lacks; kIo. All name
  // the file.
  explicit WeightFiles(std::string directory);

  // The tensors' names, sorted.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const { return tensors_.count(name) != 0; }
  // Where a tensor is and what it looks like. kNotFound if it is not there.
  const SafetensorsEntry& entry(const std::string& name) const;
  // The file that holds it.
  const SafetensorsFile& file_of(const std::string& name) const;

 private:
  struct Location {
    size_t file;
    const SafetensorsEntry* entry;
  };

  void open_whole(const std::string& file_path);
  void open_index(const std::string& index_path);
  const Location& locate(const std::string& name) const;

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, Location> tensors_;
  std::vector<std::string> names_;
};

}  // namespace fsdp2::ckpt
