// GPT-2 and models that are built like it:
//
//   GPT2LMHeadModel
//     transformer: GPT2Model
//       wte: Embedding (of tokens)   wpe: Embedding (of positions)
//       h: ModuleList of GPT2Block
//         ln_1: LayerNorm   attn: GPT2Attention   ln_2: LayerNorm   mlp: GPT2MLP
//       ln_f: LayerNorm
//     lm_head: Linear (causal_lm.h)
//
// Matrices are stored as GPT-2's are, transposed (Conv1D), and q, k and v are one of them.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <string>

#include "core/nn/module.h"

namespace fsdp2::models {

// A Builder (registry.h).
std::shared_ptr<nn::Module> build_gpt2(const std::string& config_json, at::ScalarType dtype);

}  // namespace fsdp2::models
