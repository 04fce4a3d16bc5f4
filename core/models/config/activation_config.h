// What config.json says of an activation function.
#pragma once

#include "core/models/config/config_reader.h"
#include "core/nn/layers/activation.h"

namespace fsdp2::models {

// usual: its name where the key is left out. Error: kUnsupported for another, with the list of
// those that there are.
nn::Activation read_activation(const ConfigReader& config, const char* key, const char* usual);

}  // namespace fsdp2::models
