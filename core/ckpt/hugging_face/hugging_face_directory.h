// A model directory as the transformers library saves it: config.json beside model.safetensors, or
// beside model.safetensors.index.json and the shards that it names.
//
//   ckpt::HuggingFaceDirectory directory("models/tiny-llama");
//   auto model = models::build(directory.config_json());
//   nn::materialize(*model, directory);
//
// Opening maps every file and checks its header, and that each tensor of the index is in the file
// that the index gives; values are read only when asked for, just the rows asked for. With both
// model.safetensors and an index in the directory the first is taken, as transformers does.
//
// What the names mean is the caller's matter: a tied model's file may lack lm_head.weight.
//
// The object is immutable after construction: any thread may read from it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::ckpt {

class HuggingFaceDirectory : public nn::ParameterSource {
 public:
  // Errors: kNotFound for a missing directory, config.json, weights or shard; kCorruptData for a
  // truncated or malformed file, an index that does not fit its files, or a path in it that leaves
  // the directory; kUnsupported for a dtype that LibTorch lacks; kIo. All name the file.
  explicit HuggingFaceDirectory(const std::string& path);

  const std::string& path() const { return path_; }
  // The text of config.json, as it is in the file.
  const std::string& config_json() const { return config_json_; }

  // Names of the tensors, sorted.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const override { return tensors_.count(name) != 0; }
  // Where a tensor is and what it looks like. kNotFound if it is not there.
  const SafetensorsEntry& entry(const std::string& name) const;
  // The path of the file that holds the tensor, for messages.
  const std::string& file_of(const std::string& name) const;

  // `out` may be on any device; values are converted between F64, F32, F16 and BF16. In addition to
  // ParameterSource's errors: kInvalidArgument if the rows or `out` do not fit `shape`,
  // kUnsupported if the file holds another dtype.
  void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
            at::Tensor out) override;

 private:
  struct Location {
    size_t file;
    const SafetensorsEntry* entry;
  };

  void open_whole(const std::string& file_path);
  void open_index(const std::string& index_path);
  const Location& locate(const std::string& name) const;

  std::string path_;
  std::string config_json_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, Location> tensors_;
  std::vector<std::string> names_;
};

// A config.json for weights of another dtype: its "torch_dtype" (or "dtype", where that is there).
std::string config_with_dtype(const std::string& config_json, at::ScalarType dtype);

}  // namespace fsdp2::ckpt
