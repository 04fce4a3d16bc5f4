#include "core/nn/kernels/shared_input.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <utility>
#include <vector>

#include "tests/core/nn/closeness.h"

namespace fsdp2::nn {
namespace {

struct SharedLayers {
  at::Tensor x;
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> biases;

  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> all = {x};
    all.insert(all.end(), weights.begin(), weights.end());
    for (const at::Tensor& bias : biases) {
      if (bias.defined()) {
        all.push_back(bias);
      }
    }
    return all;
  }
};

// The second layer has no bias.
SharedLayers layers_of(const std::vector<int64_t>& outputs, at::ScalarType dtype = at::kFloat) {
  constexpr int64_t kInputs = 24;
  SharedLayers layers{random_leaf({3, 5, kInputs}, 1, dtype), {}, {}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    layers.weights.push_back(random_leaf({outputs[i], kInputs}, 10 + i, dtype));
    layers.biases.push_back(i == 1 ? at::Tensor() : random_leaf({outputs[i]}, 20 + i, dtype));
  }
  return layers;
}

std::vector<at::Tensor> by_themselves(const SharedLayers& layers) {
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < layers.weights.size(); ++i) {
    outputs.push_back(
        at::linear(layers.x, layers.weights[i],
                   layers.biases[i].defined() ? std::optional(layers.biases[i]) : std::nullopt));
  }
  return outputs;
}

at::Tensor loss_of(const std::vector<at::Tensor>& outputs) {
  at::Tensor loss = at::zeros({});
  for (const at::Tensor& y : outputs) {
    loss = loss + (y.to(at::kFloat) * y.to(at::kFloat).sin()).sum();
  }
  return loss;
}

// Layers that are joined in backward, which a narrow one asks for, and layers that are not.
TEST(SharedInput, GradientsAreThoseOfLayersByThemselves) {
  for (const std::vector<int64_t>& outputs : {std::vector<int64_t>{600, 24, 16}, {600, 520}, {7}}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const SharedLayers layers = layers_of(outputs, dtype);
      ASSERT_TRUE(fit_shared_input(layers.x, layers.weights, layers.biases));
      const auto actual = shared_input_products(layers.x, layers.weights, layers.biases);
      const auto expected = by_themselves(layers);
      for (size_t i = 0; i < outputs.size(); ++i) {
        EXPECT_TRUE(actual[i].equal(expected[i])) << i;
      }
      const auto leaves = layers.leaves();
      const auto found = torch::autograd::grad({loss_of(actual)}, leaves);
      const auto wanted = torch::autograd::grad({loss_of(expected)}, leaves);
      for (size_t i = 0; i < leaves.size(); ++i) {
        EXPECT_LE(relative_difference(found[i], wanted[i]), dtype == at::kFloat ? 5e-6 : 2e-2) << i;
      }
    }
  }
}

TEST(SharedInput, GradientsOfTheOthersAreTheirsWhereSomeAreFrozen) {
  const SharedLayers layers = layers_of({600, 24, 16});
  layers.x.requires_grad_(false);
  layers.weights[0].requires_grad_(false);
  layers.biases[2].requires_grad_(false);
  const std::vector<at::Tensor> others = {layers.weights[1], layers.weights[2], layers.biases[0]};
  const at::Tensor loss = loss_of(shared_input_products(layers.x, layers.weights, layers.biases));
  const auto found = torch::autograd::grad({loss}, others);
  const auto wanted = torch::autograd::grad({loss_of(by_themselves(layers))}, others);
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_LE(relative_difference(found[i], wanted[i]), 5e-6) << i;
  }
}

// They would be kept for backward, which at::linear does not do.
TEST(SharedInput, DoesNotFitWhatNeedsNoGradient) {
  const SharedLayers frozen = layers_of({600, 24});
  frozen.weights[1].requires_grad_(false);
  EXPECT_FALSE(fit_shared_input(frozen.x, frozen.weights, frozen.biases));
  const SharedLayers first = layers_of({600, 24});
  first.x.requires_grad_(false);
  EXPECT_FALSE(fit_shared_input(first.x, first.weights, first.biases));
}

// As Conv1D has its weight, whose gradient then needs no copy.
TEST(SharedInput, AGradientHasTheLayoutOfATransposedWeight) {
  const at::Tensor x = random_leaf({6, 8}, 1);
  const at::Tensor stored = random_leaf({8, 5}, 2);
  const at::Tensor bias = random_leaf({5}, 3);
  const at::Tensor y = shared_input_products(x, stored.t(), bias)[0];
  const at::Tensor gradient = torch::autograd::grad({y.square().sum()}, {stored})[0];
  EXPECT_TRUE(gradient.is_contiguous());
  const at::Tensor expected = at::linear(x, stored.t(), bias);
  EXPECT_LE(
      relative_difference(gradient, torch::autograd::grad({expected.square().sum()}, {stored})[0]),
      5e-6);
}

TEST(SharedInput, HasSecondDerivatives) {
  const SharedLayers layers = layers_of({600, 24, 16});
  const auto second = [&](const std::vector<at::Tensor>& outputs) {
    const auto first = torch::autograd::grad({loss_of(outputs)}, layers.leaves(), {}, std::nullopt,
                                             /*create_graph=*/true);
    return torch::autograd::grad({loss_of(first)}, layers.leaves());
  };
  const auto actual = second(shared_input_products(layers.x, layers.weights, layers.biases));
  const auto expected = second(by_themselves(layers));
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_LE(relative_difference(actual[i], expected[i]), 2e-5) << i;
  }
}

TEST(SharedInput, DoesNotFitOtherDtypesAndShapes) {
  const SharedLayers layers = layers_of({6});
  ASSERT_TRUE(fit_shared_input(layers.x, layers.weights, layers.biases));
  EXPECT_FALSE(fit_shared_input(layers.x.to(at::kDouble), layers.weights, layers.biases));
  EXPECT_FALSE(fit_shared_input(layers.x.narrow(-1, 0, 8), layers.weights, layers.biases));
  EXPECT_FALSE(fit_shared_input(layers.x, layers.weights, at::zeros({7})));
  EXPECT_FALSE(fit_shared_input(layers.x, layers.weights, at::zeros({6}, at::kHalf)));
}

}  // namespace
}  // namespace fsdp2::nn
