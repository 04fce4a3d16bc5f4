// What vision encoders are made of, with the names and the numerics of the transformers library.
//
// Shapes: N patches of all images, D hidden size, H heads, E dim of a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/models/config/vision_language_config.h"
#include "core/models/vision/patch_grids.h"
#include "core/nn/layers/layers.h"
#include "core/nn/layers/rotary_embedding.h"
#include "core/nn/module.h"

namespace fsdp2::models {

// The inputs of an encoder, (pixels [N, patch_numel], grids [G,3]), checked. Error:
// kInvalidArgument if they do not fit each other or the model.
struct Patches {
  at::Tensor pixels;
  PatchGrids grids;
};
Patches read_patches(const at::Tensor& pixels, const at::Tensor& grids, const VisionConfig& config,
                     const char* pixels_name, const char* grids_name);
// The inputs of an encoder's forward.
Patches patches_of(const nn::Values& inputs, const VisionConfig& config);

// Pixels [N, patch_numel], of any floating-point dtype -> [N,D] in that of the weight. A
// convolution whose kernels lie side by side is a product with each patch. Child: proj, with a
// weight [D, channels, frames_per_patch, patch_size, patch_size], and a bias [D] if asked for.
class PatchEmbed : public nn::Module {
 public:
  PatchEmbed(std::string kind, const VisionConfig& config, bool has_bias, at::ScalarType dtype);
  nn::InputCount input_count() const override { return {1, 1}; }

 protected:
  c10::IValue forward(nn::Values inputs) override;

 private:
  std::shared_ptr<nn::Module> proj_;
};

// The angles of patches: half of the dims of a head turn with the row, the others with the column.
class PatchAngles {
 public:
  explicit PatchAngles(int64_t head_dim);
  // places [2,N] as of places_in_frames -> cos and sin [N,E/2], fp32, on the device of `like`.
  std::pair<at::Tensor, at::Tensor> cos_sin(const at::Tensor& places, const at::Tensor& like);

 private:
  nn::RotaryEmbedding rotary_;
};

// (x [N,D], cos, sin, boundaries [n + 1]) -> [N,D]: each patch sees those within its boundaries.
// Children: qkv, proj.
class VisionAttention : public nn::Module {
 public:
  VisionAttention(const VisionConfig& config, at::ScalarType dtype);
  nn::InputCount input_count() const override { return {4, 4}; }

 protected:
  c10::IValue forward(nn::Values inputs) override;

 private:
  int64_t heads_;
  std::shared_ptr<nn::Linear> qkv_;
  std::shared_ptr<nn::Linear> proj_;
};

// (x, cos, sin, boundaries) -> [N,D]: norms, attention and MLP around residuals. Children: norm1,
// norm2, attn, mlp. The angles stay fp32, whatever dtype a unit's parameters are gathered in.
class VisionBlock : public nn::Module {
 public:
  VisionBlock(const VisionConfig& config, const std::shared_ptr<nn::Module>& norm1,
              const std::shared_ptr<nn::Module>& norm2, const std::shared_ptr<nn::Module>& mlp,
              at::ScalarType dtype);
  nn::InputCount input_count() const override { return {4, 4}; }
  bool keeps_input_dtypes() const override { return true; }

 protected:
  c10::IValue forward(nn::Values inputs) override;

 private:
  std::shared_ptr<nn::Module> norm1_;
  std::shared_ptr<nn::Module> norm2_;
  std::shared_ptr<VisionAttention> attn_;
  std::shared_ptr<nn::Module> mlp_;
};

}  // namespace fsdp2::models
