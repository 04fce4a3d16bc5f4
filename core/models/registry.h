// From config.json to a model: one builder per `model_type`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/models/causal_lm.h"

namespace fsdp2::models {

// Builds the model that config.json describes, with deferred parameters of dtype `dtype`.
// Errors: kUnsupported for an unknown model_type or an unsupported feature (with the list of what
// there is), kInvalidArgument for a missing or malformed key (name, expected, found).
std::shared_ptr<CausalLM> build(const std::string& config_json, at::ScalarType dtype = at::kFloat);

// "llama", "qwen2", "qwen3".
std::vector<std::string> model_types();

}  // namespace fsdp2::models
