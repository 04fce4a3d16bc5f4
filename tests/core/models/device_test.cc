// Models on another device than the host: meta, on which every mixture with the host's tensors and
// every look at a value is an error.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "core/models/registry.h"
#include "core/nn/module.h"

namespace fsdp2::models {
namespace {

constexpr const char* kConfig = R"({
  "model_type": "qwen3", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
  "max_position_embeddings": 8, "tie_word_embeddings": false
})";

constexpr const char* kVisionConfig = R"({
  "model_type": "qwen2_5_vl", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
  "max_position_embeddings": 16, "tie_word_embeddings": false, "image_token_id": 8,
  "video_token_id": 9, "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]},
  "vision_config": {"depth": 2, "hidden_size": 16, "intermediate_size": 20, "num_heads": 2,
    "patch_size": 2, "temporal_patch_size": 2, "out_hidden_size": 16, "window_size": 4,
    "fullatt_block_indexes": [1]}
})";

// What LibTorch leaves to Python's meta kernels.
at::Tensor largest(const at::Tensor& self) { return at::empty({}, self.options()); }
at::Tensor nonzero_static(const at::Tensor& self, c10::SymInt size, int64_t /*fill_value*/) {
  return at::empty({size.expect_int(), self.dim()}, self.options().dtype(at::kLong));
}
at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[static_cast<size_t>(dim)] = index.numel();
  return at::empty(sizes, self.options());
}
at::Tensor where(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
  return at::empty(at::infer_size(condition.sizes(), at::infer_size(self.sizes(), other.sizes())),
                   self.options());
}
at::Tensor& where_out(const at::Tensor& /*condition*/, const at::Tensor& /*self*/,
                      const at::Tensor& /*other*/, at::Tensor& out) {
  return out;
}
at::Tensor embedding_dense_backward(const at::Tensor& grad, const at::Tensor& /*indices*/,
                                    c10::SymInt rows, c10::SymInt /*padding*/,
                                    bool /*by_frequency*/) {
  return at::empty({rows.expect_int(), grad.size(-1)}, grad.options());
}
TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("index_select", index_select);
  m.impl("max", largest);
  m.impl("nonzero_static", nonzero_static);
  m.impl("embedding_dense_backward", embedding_dense_backward);
  m.impl("where.self", where);
  m.impl("where.self_out", where_out);
}

// Moves the parameters, which set_data does not do to meta.
std::shared_ptr<nn::Module> model_on_device(at::ScalarType dtype, const char* config = kConfig) {
  const auto model = build(config, dtype);
  for (const auto& parameter : nn::named_unique_parameters(*model)) {
    const at::TensorOptions on_device = at::device(at::kMeta).dtype(dtype);
    c10::TensorImpl* const impl = parameter.tensor.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(at::empty(parameter.tensor.sizes(), on_device).storage());
    impl->_change_backend_component_keys(on_device.device());
  }
  return model;
}

class ModelOnADevice : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(ModelOnADevice, MakesAllTensorsOfAStepThereAndReadsNone) {
  const auto model = model_on_device(GetParam());
  const at::Tensor tokens = at::empty({2, 8}, at::device(at::kMeta).dtype(at::kLong));
  const at::Tensor loss = (*model)({tokens, tokens}).toTensor();
  EXPECT_TRUE(loss.is_meta());
  loss.backward();
  for (const auto& parameter : nn::named_unique_parameters(*model)) {
    ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.names.front();
    EXPECT_TRUE(parameter.tensor.grad().is_meta()) << parameter.names.front();
  }
}

TEST_P(ModelOnADevice, ReadsOnlyTheSizesOfImagesWhichAreOnTheHost) {
  const auto model = model_on_device(GetParam(), kVisionConfig);
  const at::TensorOptions on_device = at::device(at::kMeta);
  const at::Tensor tokens = at::empty({2, 8}, on_device.dtype(at::kLong));
  const at::Tensor pixels = at::empty({24, 24}, on_device.dtype(at::kFloat));
  const at::Tensor grids = at::tensor({1, 4, 4, 1, 2, 4}, at::kLong).view({2, 3});
  const nn::Values inputs = {tokens, tokens, {}, {}, pixels, grids};
  for (size_t place = 0; place < inputs.size(); ++place) {
    const at::Tensor& input = inputs[place].isTensor() ? inputs[place].toTensor() : tokens;
    EXPECT_EQ(model->is_read_by_host(place, input), input.is_cpu()) << place;
  }
  const at::Tensor loss = (*model)(inputs).toTensor();
  loss.backward();
  for (const auto& parameter : nn::named_unique_parameters(*model)) {
    EXPECT_TRUE(parameter.tensor.grad().defined()) << parameter.names.front();
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ModelOnADevice, ::testing::Values(at::kFloat, at::kBFloat16));

}  // namespace
}  // namespace fsdp2::models
