// From config.json to a model: one builder per `model_type`.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <string>
#include <vector>

#include "core/nn/module.h"

namespace fsdp2::models {

// Builds the module that config.json (its text) describes, with deferred parameters of dtype
// `dtype`. What kind of model it is, it says by its capabilities (language_model.h). Errors:
// kUnsupported for an unsupported feature (with the list of what there is), kInvalidArgument for a
// missing or malformed key (name, expected, found).
using Builder = std::shared_ptr<nn::Module> (*)(const std::string& config_json,
                                                at::ScalarType dtype);

// The builder of a `model_type`. Error: kUnsupported for an unknown one, with the list of
// model_types(), and how such a model can be exported instead.
Builder builder_of(const std::string& model_type);

// What the builder of config.json's `model_type` makes. Errors: builder_of's and the builder's;
// kUnsupported for a dtype that is not fp32, bf16 or fp16.
std::shared_ptr<nn::Module> build(const std::string& config_json,
                                  at::ScalarType dtype = at::kFloat);

// "encoder", "gemma", ..., sorted.
std::vector<std::string> model_types();

}  // namespace fsdp2::models
