// An encoder as PyTorch's nn.TransformerEncoder is, with each norm after its residual sum
// (norm_first=False), which tells hidden tokens from those on both sides of them:
//
//   EncoderForMaskedLM
//     encoder: Encoder
//       embed_tokens: Embedding   embed_positions: Embedding
//       layers: ModuleList of TransformerEncoderLayer
//         self_attn: MultiheadAttention   linear1, linear2: Linear   norm1, norm2: LayerNorm
//     lm_head: Linear (causal_lm.h)
//
// Parameters below "encoder.layers" have the names and shapes of nn.TransformerEncoder's state_dict
// behind "encoder.".
//
// forward takes what LanguageModel says. Labels are those of a causal model, and tell which tokens
// the model may hide (hidden_tokens.h); the loss is the mean over the hidden ones. In training mode
// each forward draws which these are; in evaluation they follow from the row's tokens alone.
// Without labels nothing is hidden, and the logits of a place are about the token there. A mask
// [B,S], 0 for padding, leaves the padding unseen by all; one of boundaries keeps packed sequences
// apart.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <string>

#include "core/nn/module.h"

namespace fsdp2::models {

// A Builder (registry.h).
std::shared_ptr<nn::Module> build_encoder(const std::string& config_json, at::ScalarType dtype);

}  // namespace fsdp2::models
