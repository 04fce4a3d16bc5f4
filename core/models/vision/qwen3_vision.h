// The vision encoder of Qwen3-VL:
//
//   Qwen3VLVisionModel
//     patch_embed: Qwen3VLVisionPatchEmbed   pos_embed: Embedding
//     blocks: ModuleList of Qwen3VLVisionBlock
//       norm1, norm2: LayerNorm   attn: Qwen3VLVisionAttention   mlp: Qwen3VLVisionMLP
//     merger: Qwen3VLVisionPatchMerger
//       norm: LayerNorm   linear_fc1, linear_fc2: Linear
//     deepstack_merger_list: ModuleList of Qwen3VLVisionPatchMerger
//
// (pixels [N, patch_numel], grids [G,3] on the CPU) -> a tuple of [N / merge_size^2, output_size]:
// what stands in for tokens, then what is added to the outputs of the decoder's first layers.
#pragma once

#include <memory>

#include "core/models/config/vision_language_config.h"
#include "core/nn/module.h"

namespace fsdp2::models {

std::shared_ptr<nn::Module> make_qwen3_vision(const VisionConfig& config, at::ScalarType dtype);

}  // namespace fsdp2::models
