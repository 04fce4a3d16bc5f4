// A model directory as the transformers library saves it: config.json beside model.safetensors, or
// beside model.safetensors.index.json and the shards that it names.
//
//   ckpt::HuggingFaceDirectory directory("models/tiny-llama");
//   auto model = models::build(directory.config_json());
//   nn::materialize(*model, directory);
//
// The weights are those of weight_files.h; values are read only when asked for, just the rows asked
// for.
//
// What the names mean is the caller's matter: a tied model's file may lack lm_head.weight. A model
// that was saved without its head, as GPT-2 on the Hugging Face Hub, has the names without that of
// its body: "transformer.h.0.ln_1.weight" also finds "h.0.ln_1.weight". A vision-language model
// whose tensors were saved one by one has the names that transformers gives them in memory:
// "visual.x" also finds "model.visual.x", and "model.x" finds "model.language_model.x".
//
// The object is immutable after construction: any thread may read from it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/ckpt/hugging_face/weight_files.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::ckpt {

class HuggingFaceDirectory : public nn::ParameterSource {
 public:
  // Errors: kNotFound for a missing directory or config.json; those of WeightFiles.
  explicit HuggingFaceDirectory(const std::string& path);

  const std::string& path() const { return path_; }
  // The text of config.json, as it is in the file.
  const std::string& config_json() const { return config_json_; }

  // Names of the tensors, sorted.
  const std::vector<std::string>& names() const { return weights_.names(); }
  bool contains(const std::string& name) const override {
    return weights_.contains(stored_name(name));
  }
  // Where a tensor is and what it looks like. kNotFound if it is not there.
  const SafetensorsEntry& entry(const std::string& name) const {
    return weights_.entry(stored_name(name));
  }
  // The path of the file that holds the tensor, for messages.
  const std::string& file_of(const std::string& name) const {
    return weights_.file_of(stored_name(name)).path();
  }

  // `out` may be on any device; values are converted between F64, F32, F16 and BF16. In addition to
  // ParameterSource's errors: kInvalidArgument if the rows or `out` do not fit `shape`,
  // kUnsupported if the file holds another dtype.
  void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
            at::Tensor out) override;
  std::string mark_of(const std::string& name) const override;
  // Without the buffers that older releases of transformers saved, which every model makes anew.
  std::vector<std::string> unused(const std::vector<std::string>& parameters) const override;

 private:
  // The name as it is in the files; itself if they have neither.
  std::string stored_name(const std::string& name) const;

  std::string path_;
  std::string config_json_;
  WeightFiles weights_;
};

}  // namespace fsdp2::ckpt
