// The vision encoder of Qwen2.5-VL:
//
//   Qwen2_5_VisionTransformerPretrainedModel
//     patch_embed: Qwen2_5_VisionPatchEmbed
//     blocks: ModuleList of Qwen2_5_VLVisionBlock
//       norm1, norm2: Qwen2RMSNorm   attn: Qwen2_5_VLVisionAttention   mlp: Qwen2_5_VLMLP
//     merger: Qwen2_5_VLPatchMerger
//       ln_q: Qwen2RMSNorm   mlp: Sequential ("0", "2": Linear)
//
// (pixels [N, patch_numel], grids [G,3] on the CPU) -> [N / merge_size^2, output_size]. Attention
// keeps to windows of each frame, and in some layers to the frame.
#pragma once

#include <memory>

#include "core/models/config/vision_language_config.h"
#include "core/nn/module.h"

namespace fsdp2::models {

std::shared_ptr<nn::Module> make_qwen2_5_vision(const VisionConfig& config, at::ScalarType dtype);

}  // namespace fsdp2::models
