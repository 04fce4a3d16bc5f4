#include "core/models/vision/qwen3_vision.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>

#include <algorithm>
#include <vector>

#include "core/models/vision/patch_grids.h"
#include "core/models/vision/table_corners.h"
#include "core/models/vision/vision_layers.h"
#include "core/nn/layers/layers.h"
#include "core/nn/module_list.h"

namespace fsdp2::models {

namespace {

std::shared_ptr<nn::Module> qwen3_norm(int64_t size, at::ScalarType dtype) {
  return std::make_shared<nn::LayerNorm>(size, /*eps=*/1e-6, dtype);
}

class Qwen3VisionMlp : public nn::Module {
 public:
  Qwen3VisionMlp(const VisionConfig& config, at::ScalarType dtype)
      : Module(config.kind("VisionMLP")), activation_(config.activation) {
    linear_fc1_ = register_module(
        "linear_fc1", std::make_shared<nn::Linear>(config.hidden_size, config.intermediate_size,
                                                   /*has_bias=*/true, dtype));
    linear_fc2_ = register_module(
        "linear_fc2", std::make_shared<nn::Linear>(config.intermediate_size, config.hidden_size,
                                                   /*has_bias=*/true, dtype));
  }

  nn::InputCount input_count() const override { return {1, 1}; }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    return (*linear_fc2_)(nn::activated((*linear_fc1_)(inputs.at(0).toTensor()), activation_));
  }

 private:
  nn::Activation activation_;
  std::shared_ptr<nn::Linear> linear_fc1_;
  std::shared_ptr<nn::Linear> linear_fc2_;
};

std::shared_ptr<nn::Module> qwen3_block(const VisionConfig& config, at::ScalarType dtype) {
  return std::make_shared<VisionBlock>(config, qwen3_norm(config.hidden_size, dtype),
                                       qwen3_norm(config.hidden_size, dtype),
                                       std::make_shared<Qwen3VisionMlp>(config, dtype), dtype);
}

// [N,D], the patches of a square together -> [N / merge_size^2, output_size].
class Qwen3PatchMerger : public nn::Module {
 public:
  // norms_squares: the norm is over all features of a square, not over those of each patch.
  Qwen3PatchMerger(const VisionConfig& config, bool norms_squares, at::ScalarType dtype)
      : Module(config.kind("VisionPatchMerger")),
        width_(config.hidden_size * config.merged_patches()) {
    normed_width_ = norms_squares ? width_ : config.hidden_size;
    norm_ = register_module("norm", qwen3_norm(normed_width_, dtype));
    linear_fc1_ = register_module(
        "linear_fc1", std::make_shared<nn::Linear>(width_, width_, /*has_bias=*/true, dtype));
    linear_fc2_ = register_module(
        "linear_fc2",
        std::make_shared<nn::Linear>(width_, config.output_size, /*has_bias=*/true, dtype));
  }

  nn::InputCount input_count() const override { return {1, 1}; }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor normed = (*norm_)(inputs.at(0).toTensor().view({-1, normed_width_}));
    return (*linear_fc2_)(at::gelu((*linear_fc1_)(normed.view({-1, width_}))));
  }

 private:
  int64_t width_;
  int64_t normed_width_;
  std::shared_ptr<nn::Module> norm_;
  std::shared_ptr<nn::Linear> linear_fc1_;
  std::shared_ptr<nn::Linear> linear_fc2_;
};

class Qwen3Vision : public nn::Module {
 public:
  Qwen3Vision(const VisionConfig& config, at::ScalarType dtype)
      : Module(config.kind("VisionModel")), config_(config), angles_(config.head_dim()) {
    patch_embed_ = register_module(
        "patch_embed", std::make_shared<PatchEmbed>(config.kind("VisionPatchEmbed"), config,
                                                    /*has_bias=*/true, dtype));
    pos_embed_ = register_module(
        "pos_embed", std::make_shared<nn::Embedding>(config.position_side * config.position_side,
                                                     config.hidden_size, dtype));
    const auto list = register_module("blocks", std::make_shared<nn::ModuleList>());
    for (int64_t i = 0; i < config.layers; ++i) {
      blocks_.push_back(qwen3_block(config, dtype));
      list->append(blocks_.back());
    }
    merger_ = register_module(
        "merger", std::make_shared<Qwen3PatchMerger>(config, /*norms_squares=*/false, dtype));
    const auto mergers =
        register_module("deepstack_merger_list", std::make_shared<nn::ModuleList>());
    for (size_t i = 0; i < config.deepstack_layers.size(); ++i) {
      deepstack_mergers_.push_back(
          std::make_shared<Qwen3PatchMerger>(config, /*norms_squares=*/true, dtype));
      mergers->append(deepstack_mergers_.back());
    }
  }

  nn::InputCount input_count() const override { return {2, 2}; }
  bool keeps_input_dtypes() const override { return true; }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const Patches patches = patches_of(inputs, config_);
    at::Tensor hidden = (*patch_embed_)(patches.pixels);
    hidden = hidden + positions_of(patches.grids, hidden);
    const auto [cos, sin] =
        angles_.cos_sin(places_in_frames(patches.grids, config_.merge_size), hidden);
    const at::Tensor frames = frame_boundaries(patches.grids);
    std::vector<c10::IValue> features(1);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      hidden = (*blocks_[i])(nn::Values{hidden, cos, sin, frames}).toTensor();
      if (const auto merger = deepstack_merger_of(i)) {
        features.emplace_back((*merger)(hidden));
      }
    }
    features.front() = (*merger_)(hidden);
    return c10::ivalue::Tuple::create(std::move(features));
  }

 private:
  // The learned positions of the patches [N,D], like hidden.
  at::Tensor positions_of(const PatchGrids& grids, const at::Tensor& hidden) {
    const TableCorners corners = table_corners(grids, config_.merge_size, config_.position_side);
    const at::Tensor entries =
        (*pos_embed_)(corners.entries.to(hidden.device(), /*non_blocking=*/true));  // [4,N,D]
    const at::Tensor weights = corners.weights.to(entries.options(), /*non_blocking=*/true);
    const at::Tensor weighted = entries * weights.unsqueeze(-1);
    // One after the other, as transformers rounds them.
    return weighted.select(0, 0) + weighted.select(0, 1) + weighted.select(0, 2) +
           weighted.select(0, 3);
  }

  // Null where the layer's output does not go to the decoder.
  std::shared_ptr<nn::Module> deepstack_merger_of(size_t layer) const {
    const std::vector<int64_t>& layers = config_.deepstack_layers;
    const auto found = std::find(layers.begin(), layers.end(), static_cast<int64_t>(layer));
    return found == layers.end() ? nullptr
                                 : deepstack_mergers_[static_cast<size_t>(found - layers.begin())];
  }

  VisionConfig config_;
  PatchAngles angles_;
  std::shared_ptr<PatchEmbed> patch_embed_;
  std::shared_ptr<nn::Embedding> pos_embed_;
  std::vector<std::shared_ptr<nn::Module>> blocks_;
  std::shared_ptr<nn::Module> merger_;
  std::vector<std::shared_ptr<nn::Module>> deepstack_mergers_;
};

}  // namespace

std::shared_ptr<nn::Module> make_qwen3_vision(const VisionConfig& config, at::ScalarType dtype) {
  return std::make_shared<Qwen3Vision>(config, dtype);
}

}  // namespace fsdp2::models
