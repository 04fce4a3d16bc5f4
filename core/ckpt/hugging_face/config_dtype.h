// What a model's config.json says of the dtype of its weights, which the transformers library loads
// them in if it is asked for "auto".
#pragma once

#include <string>
#include <vector>

#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

// A config.json for these tensors: its "torch_dtype" (or "dtype", where that is there) is theirs,
// or the widest of theirs, so that nothing is rounded. The text itself if it says so already, or if
// the weights have no dtype with a name there (quantized ones). Errors: kCorruptData for a text
// that is no JSON object.
std::string config_for(const std::string& config_json, const std::vector<TensorSpec>& tensors);

}  // namespace fsdp2::ckpt
