#include "core/models/vision/qwen2_5_vision.h"

#include <ATen/ops/gelu.h>

#include <algorithm>
#include <vector>

#include "core/models/vision/patch_grids.h"
#include "core/models/vision/vision_layers.h"
#include "core/nn/layers/layers.h"
#include "core/nn/module_list.h"

namespace fsdp2::models {

namespace {

constexpr double kNormEps = 1e-6;

std::shared_ptr<nn::Module> qwen2_5_norm(const VisionConfig& config, at::ScalarType dtype) {
  return std::make_shared<nn::RMSNorm>("Qwen2RMSNorm", config.hidden_size, kNormEps, dtype);
}

std::shared_ptr<nn::Module> qwen2_5_block(const VisionConfig& config, at::ScalarType dtype) {
  return std::make_shared<VisionBlock>(
      config, qwen2_5_norm(config, dtype), qwen2_5_norm(config, dtype),
      std::make_shared<nn::GatedMlp>(config.kind("MLP"), config.hidden_size,
                                     config.intermediate_size, /*has_bias=*/true, dtype),
      dtype);
}

// Linear, GELU, Linear.
class MergerMlp : public nn::Module {
 public:
  MergerMlp(int64_t width, int64_t output_size, at::ScalarType dtype)
      : Module("Sequential"),
        first_(register_module(
            "0", std::make_shared<nn::Linear>(width, width, /*has_bias=*/true, dtype))),
        last_(register_module(
            "2", std::make_shared<nn::Linear>(width, output_size, /*has_bias=*/true, dtype))) {}

  nn::InputCount input_count() const override { return {1, 1}; }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    return (*last_)(at::gelu((*first_)(inputs.at(0).toTensor())));
  }

 private:
  std::shared_ptr<nn::Linear> first_;
  std::shared_ptr<nn::Linear> last_;
};

// [N,D], the patches of a square together -> [N / merge_size^2, output_size].
class Qwen25PatchMerger : public nn::Module {
 public:
  Qwen25PatchMerger(const VisionConfig& config, at::ScalarType dtype)
      : Module(config.kind("PatchMerger")), width_(config.hidden_size * config.merged_patches()) {
    ln_q_ = register_module("ln_q", qwen2_5_norm(config, dtype));
    mlp_ = register_module("mlp", std::make_shared<MergerMlp>(width_, config.output_size, dtype));
  }

  nn::InputCount input_count() const override { return {1, 1}; }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    return (*mlp_)((*ln_q_)(inputs.at(0).toTensor()).view({-1, width_}));
  }

 private:
  int64_t width_;
  std::shared_ptr<nn::Module> ln_q_;
  std::shared_ptr<MergerMlp> mlp_;
};

class Qwen25Vision : public nn::Module {
 public:
  Qwen25Vision(const VisionConfig& config, at::ScalarType dtype)
      : Module("Qwen2_5_VisionTransformerPretrainedModel"),
        config_(config),
        angles_(config.head_dim()) {
    patch_embed_ = register_module("patch_embed",
                                   std::make_shared<PatchEmbed>("Qwen2_5_VisionPatchEmbed", config,
                                                                /*has_bias=*/false, dtype));
    const auto list = register_module("blocks", std::make_shared<nn::ModuleList>());
    for (int64_t i = 0; i < config.layers; ++i) {
      blocks_.push_back(qwen2_5_block(config, dtype));
      list->append(blocks_.back());
    }
    merger_ = register_module("merger", std::make_shared<Qwen25PatchMerger>(config, dtype));
  }

  nn::InputCount input_count() const override { return {2, 2}; }
  bool keeps_input_dtypes() const override { return true; }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const Patches patches = patches_of(inputs, config_);
    const Windows windows = windows_of(patches.grids, config_.merge_size, config_.window);
    const at::Tensor frames = frame_boundaries(patches.grids);
    at::Tensor hidden = (*patch_embed_)(patches.pixels);
    const at::Tensor order = windows.order.to(hidden.device(), /*non_blocking=*/true);
    // A window's squares lie together through all blocks.
    hidden = by_square(hidden).index_select(0, order).flatten(0, 1);
    const at::Tensor places = by_square(places_in_frames(patches.grids, config_.merge_size).t())
                                  .index_select(0, windows.order)
                                  .flatten(0, 1)
                                  .t();
    const auto [cos, sin] = angles_.cos_sin(places, hidden);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const at::Tensor& seen = sees_frames(i) ? frames : windows.boundaries;
      hidden = (*blocks_[i])(nn::Values{hidden, cos, sin, seen}).toTensor();
    }
    const at::Tensor back = windows.back.to(hidden.device(), /*non_blocking=*/true);
    return (*merger_)(hidden).index_select(0, back);
  }

 private:
  // [N,X] -> [N / merge_size^2, merge_size^2, X].
  at::Tensor by_square(const at::Tensor& x) const {
    return x.reshape({-1, config_.merged_patches(), x.size(1)});
  }
  bool sees_frames(size_t layer) const {
    const std::vector<int64_t>& full = config_.full_attention_layers;
    return std::find(full.begin(), full.end(), static_cast<int64_t>(layer)) != full.end();
  }

  VisionConfig config_;
  PatchAngles angles_;
  std::shared_ptr<PatchEmbed> patch_embed_;
  std::vector<std::shared_ptr<nn::Module>> blocks_;
  std::shared_ptr<Qwen25PatchMerger> merger_;
};

}  // namespace

std::shared_ptr<nn::Module> make_qwen2_5_vision(const VisionConfig& config, at::ScalarType dtype) {
  return std::make_shared<Qwen25Vision>(config, dtype);
}

}  // namespace fsdp2::models
