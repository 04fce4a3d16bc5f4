// What config.json says of the rotary embedding: `rope_theta` and `rope_scaling`, or
// `rope_parameters` as newer versions of transformers write.
#pragma once

#include <cstdint>

#include "core/models/config/config_reader.h"
#include "core/nn/layers/rotary_embedding.h"

namespace fsdp2::models {

// max_positions: the config's max_position_embeddings. usual_theta: where the config has none. All
// rope types of transformers are taken; error: kUnsupported for another, with the list of them.
nn::RotaryOptions read_rope(const ConfigReader& config, int64_t head_dim, int64_t max_positions,
                            double usual_theta);

}  // namespace fsdp2::models
