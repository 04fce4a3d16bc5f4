// The tiny vision-language models and their inputs, with what transformers makes of these;
// make_vision_language.py has written all of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/nn/module.h"

namespace fsdp2 {

inline const std::vector<std::string> kVisionModels = {"tiny-qwen2.5-vl", "tiny-qwen3-vl"};

std::string vision_directory(const std::string& model);
// Built with deferred parameters.
std::shared_ptr<nn::Module> build_vision_model(const std::string& model,
                                               at::ScalarType dtype = at::kFloat);
// With values.
std::shared_ptr<nn::Module> load_vision_model(const std::string& model,
                                              at::ScalarType dtype = at::kFloat);

// The named parameters of the encoder get no gradients.
void freeze_encoder(nn::Module& model);
bool is_of_encoder(const std::string& parameter);

struct VisionCase {
  VisionCase(const std::string& model, const std::string& name);

  // The inputs of so many rows of the batch, as LanguageModel has them; the labels of padding do
  // not count. model: whose images are cut.
  nn::Values rows(const nn::Module& model, int64_t first, int64_t count) const;
  nn::Values all(const nn::Module& model) const { return rows(model, 0, n_rows()); }
  int64_t n_rows() const { return inputs[0].toTensor().size(0); }

  nlohmann::json expected;
  nn::Values inputs;  // of the whole batch
};

}  // namespace fsdp2
