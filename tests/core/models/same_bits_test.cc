// A model computes the same bits from the same numbers, wherever its memory lies.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "core/models/registry.h"
#include "core/nn/seeded_init.h"

namespace fsdp2::models {
namespace {

// So narrow that rows of different tensors lie close together.
constexpr const char* kNarrow = R"({
  "model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 12,
  "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16
})";

std::vector<at::Tensor> gradients_of(nn::Module& model, const at::Tensor& tokens) {
  std::vector<at::Tensor> gradients;
  model(tokens).sum().backward();
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(model)) {
    gradients.push_back(parameter.tensor.grad());
    const_cast<at::Tensor&>(parameter.tensor).mutable_grad() = at::Tensor();
  }
  return gradients;
}

TEST(NarrowModel, HasTheSameGradientsToTheBitEachTime) {
  at::set_num_threads(1);
  const auto model = build(kNarrow);
  nn::SeededInit source(1, 0.2);
  nn::materialize(*model, source);
  const at::Tensor tokens = (at::arange(3) * 7).view({1, 3});
  const std::vector<at::Tensor> expected = gradients_of(*model, tokens);
  std::mt19937 random(3);
  // Blocks that come and go, so that others move.
  std::vector<at::Tensor> aligned(64);
  std::vector<std::vector<char>> unaligned(64);
  int different = 0;
  for (int i = 0; i < 3000; ++i) {
    for (int block = 0; block < 4; ++block) {
      aligned[random() % aligned.size()] = at::empty({static_cast<int64_t>(random() % 48)});
      unaligned[random() % unaligned.size()] = std::vector<char>(random() % 160);
    }
    const std::vector<at::Tensor> found = gradients_of(*model, tokens);
    for (size_t p = 0; p < found.size(); ++p) {
      different += found[p].equal(expected[p]) ? 0 : 1;
    }
  }
  EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace fsdp2::models
