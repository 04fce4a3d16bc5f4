// Handles of modules that callers put together.
#pragma once

#include <functional>
#include <memory>

#include "core/nn/custom_module.h"
#include "core/nn/stock/layer.h"
#include "include/fsdp2/module.h"

namespace fsdp2::capi {

// The handle's id of the module that `make` makes. Its parameters begin with what they are added
// with, by the options' seed.
uint64_t give_custom(
    const fsdp2_module_options* options,
    const std::function<std::shared_ptr<nn::CustomModule>(const nn::LayerSettings&)>& make);

}  // namespace fsdp2::capi
