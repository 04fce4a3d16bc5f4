// Layers by the names, options, parameters and initial values that they have in PyTorch
// (torch.nn, 2.11). Each is a CustomModule, as those of callers are: made here, and a part of a
// tree like any other.
//
//   auto layer = make_layer("Linear", R"({"in_features": 8, "out_features": 4})", {at::kFloat});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/nn/custom_module.h"

namespace fsdp2::nn {

struct LayerSettings {
  at::ScalarType dtype = at::kFloat;  // of the parameters
  // As CustomModuleOptions has them.
  uint64_t seed = 0;
  std::function<std::string(const at::Tensor&)> title_of_parameter;
};

// Errors, each kInvalidArgument: a kind that is not there, which names the nearest; options as
// LayerOptions refuses them.
std::shared_ptr<CustomModule> make_layer(const std::string& kind, const std::string& options,
                                         const LayerSettings& settings);

}  // namespace fsdp2::nn
