// Causal language models that see images and videos: an encoder, whose outputs stand in for certain
// tokens, before a decoder (decoder.h) with positions of three axes.
//
//   Qwen2_5_VLForConditionalGeneration           Qwen3VLForConditionalGeneration
//     visual (vision/qwen2_5_vision.h)             model: Qwen3VLModel
//     model: Qwen2_5_VLTextModel                     visual (vision/qwen3_vision.h)
//     lm_head: Linear                                language_model: Qwen3VLTextModel
//                                                  lm_head: Linear
//
// The names are those of the published files.
//
// Note [Ranks without images]
// A batch without images and videos leaves the encoder out, as in the transformers library: its
// parameters get no gradient then, rather than one of zero, which an optimizer with momentum or
// weight decay would act on. The model knows nothing of ranks; where it is sharded and others have
// images, the agreed schedule gathers and reduces the encoder's units on all ranks alike, whether
// they use them or not (fsdp/step_order.h). Under the schedule of PyTorch, kOnUse, either all ranks
// have images or none has, and path_of lets them find out before they wait for each other. Images
// and videos of one batch go through the encoder together, so that it runs once wherever it runs.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <string>

#include "core/nn/module.h"

namespace fsdp2::models {

// Builders (registry.h).
std::shared_ptr<nn::Module> build_qwen2_5_vl(const std::string& config_json, at::ScalarType dtype);
std::shared_ptr<nn::Module> build_qwen3_vl(const std::string& config_json, at::ScalarType dtype);

}  // namespace fsdp2::models
