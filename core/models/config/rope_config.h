// What config.json says of the rotary embedding: `rope_theta` and `rope_scaling`, or
// `rope_parameters` as newer versions of transformers write.
#pragma once

#include <cstdint>

#include "core/models/config/config_reader.h"
#include "core/models/config/decoder_config.h"
#include "core/nn/layers/rotary_embedding.h"

namespace fsdp2::models {

// How many of a head's dims rotate: all, or with rules that allow it a share of them.
int64_t read_rotary_dim(const ConfigReader& config, int64_t head_dim, const RopeRules& rules);

// rotary_dim: the dims that rotate. max_positions: the config's max_position_embeddings.
// usual_theta: where the config has none. longrope_positions: see RopeRules. layers: of this type,
// as "full_attention", where newer versions of transformers write ropes by the type of the layer;
// null: all layers have one. All rope types of transformers are taken; error: kUnsupported for
// another, with the list of them.
nn::RotaryOptions read_rope(const ConfigReader& config, int64_t rotary_dim, int64_t max_positions,
                            double usual_theta, int64_t longrope_positions = 0,
                            const char* layers = nullptr);

}  // namespace fsdp2::models
