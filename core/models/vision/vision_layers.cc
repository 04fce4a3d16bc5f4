#include "core/models/vision/vision_layers.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <vector>

#include "core/base/error.h"
#include "core/nn/layers/attend.h"
#include "core/nn/layers/patch_convolution.h"

namespace fsdp2::models {

Patches read_patches(const at::Tensor& pixels, const at::Tensor& grids, const VisionConfig& config,
                     const char* pixels_name, const char* grids_name) {
  FSDP2_CHECK(
      pixels.dim() == 2 && pixels.size(1) == config.patch_numel() && pixels.is_floating_point(),
      Code::kInvalidArgument,
      "{}: expected floating-point numbers [patches, {}] ({} channels x {} frames x {} x {} "
      "pixels), got {} [{}]",
      pixels_name, config.patch_numel(), config.channels, config.frames_per_patch,
      config.patch_size, config.patch_size, c10::toString(pixels.scalar_type()),
      fmt::join(pixels.sizes(), ", "));
  return {pixels, read_grids(grids, pixels.size(0), config.merge_size, grids_name)};
}

Patches patches_of(const nn::Values& inputs, const VisionConfig& config) {
  FSDP2_CHECK(inputs.size() == 2 && inputs[0].isTensor() && inputs[1].isTensor(),
              Code::kInvalidArgument, "{}: expected pixels and grids, got {} inputs", config.family,
              inputs.size());
  return read_patches(inputs[0].toTensor(), inputs[1].toTensor(), config, "pixels", "grids");
}

PatchEmbed::PatchEmbed(std::string kind, const VisionConfig& config, bool has_bias,
                       at::ScalarType dtype)
    : Module(std::move(kind)) {
  const std::vector<int64_t> kernel = {config.channels, config.frames_per_patch, config.patch_size,
                                       config.patch_size};
  proj_ = register_module(
      "proj", std::make_shared<nn::PatchConvolution>(config.hidden_size, kernel, has_bias, dtype));
}

c10::IValue PatchEmbed::forward(nn::Values inputs) { return (*proj_)(std::move(inputs)); }

PatchAngles::PatchAngles(int64_t head_dim) : rotary_(head_dim / 2, /*theta=*/10000.0) {}

std::pair<at::Tensor, at::Tensor> PatchAngles::cos_sin(const at::Tensor& places,
                                                       const at::Tensor& like) {
  const auto [cos, sin] =
      rotary_.cos_sin(places, at::empty({0}, like.options().dtype(at::kFloat)));  // [2,N,E/4]
  const auto side_by_side = [](const at::Tensor& angles) {
    return angles.transpose(0, 1).flatten(1);
  };
  return {side_by_side(cos), side_by_side(sin)};
}

VisionAttention::VisionAttention(const VisionConfig& config, at::ScalarType dtype)
    : Module(config.kind("VisionAttention")), heads_(config.heads) {
  const int64_t size = config.hidden_size;
  qkv_ = register_module("qkv",
                         std::make_shared<nn::Linear>(size, 3 * size, /*has_bias=*/true, dtype));
  proj_ =
      register_module("proj", std::make_shared<nn::Linear>(size, size, /*has_bias=*/true, dtype));
}

c10::IValue VisionAttention::forward(nn::Values inputs) {
  const at::Tensor& x = inputs.at(0).toTensor();
  const at::Tensor& cos = inputs.at(1).toTensor();
  const at::Tensor& sin = inputs.at(2).toTensor();
  const std::vector<at::Tensor> qkv =  // 3 of [1,N,H,E]
      (*qkv_)(x).view({1, x.size(0), 3, heads_, x.size(1) / heads_}).unbind(2);
  const at::Tensor q = nn::rotate(qkv[0], cos, sin).squeeze(0);
  const at::Tensor k = nn::rotate(qkv[1], cos, sin).squeeze(0);
  const at::Tensor v = qkv[2].squeeze(0);
  const at::Tensor mixed = nn::attend_both_ways(q, k, v, inputs.at(3).toTensor());
  return (*proj_)(mixed.reshape(x.sizes()));
}

VisionBlock::VisionBlock(const VisionConfig& config, const std::shared_ptr<nn::Module>& norm1,
                         const std::shared_ptr<nn::Module>& norm2,
                         const std::shared_ptr<nn::Module>& mlp, at::ScalarType dtype)
    : Module(config.kind("VisionBlock")),
      norm1_(register_module("norm1", norm1)),
      norm2_(register_module("norm2", norm2)),
      attn_(register_module("attn", std::make_shared<VisionAttention>(config, dtype))),
      mlp_(register_module("mlp", mlp)) {}

c10::IValue VisionBlock::forward(nn::Values inputs) {
  // Sums are not taken in place: a module's output may be a view that carries a hook.
  const at::Tensor x = inputs.at(0).toTensor();
  inputs[0] = (*norm1_)(x);
  const at::Tensor hidden = x + (*attn_)(std::move(inputs)).toTensor();
  return hidden + (*mlp_)((*norm2_)(hidden));
}

}  // namespace fsdp2::models
