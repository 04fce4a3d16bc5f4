// AdamW with moments in bf16: what an update computes, how it rounds, and that any number of ranks
// rounds alike.
#include "core/train/optim/bf16_moments.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/fsdp/fully_shard.h"
#include "core/fsdp/parameter_values.h"
#include "core/train/optim/adamw.h"
#include "core/train/optim/adamw_moments.h"
#include "core/train/optim/muon.h"
#include "tests/support/checklist_models.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

using checklist::make_linears;
using checklist::seed;

constexpr double kUlp = 1.0 / 128;  // of bf16, at most

AdamWOptions in_bf16(double lr = 1e-2) {
  AdamWOptions options{lr, 0.9, 0.999, 1e-8, 0.1};
  options.state_dtype = at::kBFloat16;
  return options;
}

// The lists of one tensor that is all of a parameter, its moments zeros.
FusedLists lists_of(const at::Tensor& param, uint64_t key = 77) {
  FusedLists lists;
  lists.params = {param};
  lists.grads = {at::zeros_like(param)};
  lists.first_state = {at::zeros_like(param, at::kBFloat16)};
  lists.second_state = {at::zeros_like(param, at::kBFloat16)};
  lists.steps = {at::zeros({}, at::kFloat)};
  lists.chances = {{key, {0, param.numel(), param.numel()}}};
  return lists;
}

using Update = void (*)(FusedLists& lists, const AdamWOptions& options, double lr,
                        const GradScale& scale);

void step(FusedLists& lists, const at::Tensor& gradient, const AdamWOptions& options,
          Update update = update_adamw_with_bf16_moments, const GradScale& scale = std::nullopt) {
  lists.steps.front().add_(1);
  lists.grads.front().copy_(gradient);
  update(lists, options, options.lr, scale);
}

double share_of_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.eq(b).to(at::kDouble).mean().item<double>();
}

// Numbers of many sizes.
at::Tensor gradient_of(int64_t numel, uint64_t number) {
  const auto generator = at::detail::createCPUGenerator(number);
  return at::randn({numel}, generator, at::kFloat) *
         at::pow(10.0, at::rand({numel}, generator, at::kFloat) * 8 - 6);
}

TEST(Bf16Moments, TheLoopMakesWhatOperatorsMake) {
  constexpr int64_t kBeyond32Bits = (int64_t{1} << 32) - 100;  // the places of most elements are
  for (const bool decoupled : {true, false}) {
    for (const int64_t numel : {1, 15, 512, 513, 20001}) {
      AdamWOptions options = in_bf16();
      options.decoupled_weight_decay = decoupled;
      FusedLists loop = lists_of(gradient_of(numel, 1));
      FusedLists operators = lists_of(loop.params.front().clone());
      for (FusedLists* lists : {&loop, &operators}) {
        lists->chances.front().places.first = decoupled ? 0 : kBeyond32Bits;
      }
      for (uint64_t i = 0; i < 8; ++i) {
        const at::Tensor gradient = gradient_of(numel, 2 + i);
        const at::Tensor scale = at::scalar_tensor(3.0, at::kFloat);
        const GradScale divisor = i % 2 == 0 ? GradScale() : GradScale(scale);
        step(loop, gradient, options, update_adamw_with_bf16_moments, divisor);
        step(operators, gradient, options, update_adamw_by_operators, divisor);
        EXPECT_TRUE(at::equal(loop.grads.front(), operators.grads.front()));
      }
      SCOPED_TRACE(testing::Message() << numel << (decoupled ? "" : " coupled"));
      // fp32 is rounded in another order, which can turn a rounding that follows, and rarely does.
      EXPECT_GT(share_of_equal(loop.first_state[0], operators.first_state[0]), 0.99);
      EXPECT_GT(share_of_equal(loop.second_state[0], operators.second_state[0]), 0.99);
      EXPECT_TRUE(at::allclose(loop.params[0], operators.params[0], 1e-3, 1e-3));
      EXPECT_TRUE(at::allclose(loop.second_state[0].to(at::kFloat),
                               operators.second_state[0].to(at::kFloat), 2 * kUlp, 0));
    }
  }
}

// One update from the moments that were stored, in fp64.
TEST(Bf16Moments, AnElementFollowsTheFormulaInDoubleFromStepToStep) {
  const AdamWOptions options = in_bf16(0.05);
  FusedLists lists = lists_of(at::full({1}, 0.5, at::kFloat));
  double param = 0.5;
  for (int i = 1; i <= 100; ++i) {
    const double gradient = std::sin(i) * (1 + i % 7);
    const double exp_avg =
        0.9 * lists.first_state[0].item<double>() + 0.1 * static_cast<float>(gradient);
    const double exp_avg_sq =
        0.999 * lists.second_state[0].item<double>() + 0.001 * gradient * gradient;
    step(lists, at::full({1}, gradient, at::kFloat), options);
    param -= 0.05 * 0.1 * param;
    param -= 0.05 / (1 - std::pow(0.9, i)) * exp_avg /
             (std::sqrt(exp_avg_sq / (1 - std::pow(0.999, i))) + 1e-8);
    ASSERT_NEAR(lists.params[0].item<double>(), param, 1e-5 * i) << i;
    const double stored = lists.second_state[0].item<double>();
    ASSERT_LT(std::abs(stored - exp_avg_sq), kUlp * exp_avg_sq) << i;  // a neighbour, either one
    ASSERT_LE(std::abs(lists.first_state[0].item<double>() - exp_avg),
              kUlp / 2 * std::abs(exp_avg) + 1e-6)
        << i;
    param = lists.params[0].item<double>();
  }
}

// A second moment that would stand still if it was rounded to nearest.
TEST(Bf16Moments, TheSecondOneFollowsItsDecayInTheMean) {
  constexpr int64_t kElements = 20000;
  const AdamWOptions options = in_bf16();
  FusedLists lists = lists_of(at::zeros({kElements}, at::kFloat));
  lists.second_state[0].fill_(4.0);
  at::Tensor nearest = at::full({1}, 4.0, at::kBFloat16);
  double expected = 4.0;
  for (int i = 0; i < 700; ++i) {
    step(lists, at::full({kElements}, 0.5, at::kFloat), options);
    expected = 0.999 * expected + 0.001 * 0.25;
    nearest = (nearest.to(at::kFloat) * 0.999 + 0.001 * 0.25).to(at::kBFloat16);
  }
  EXPECT_EQ(nearest.item<double>(), 4.0);
  EXPECT_LT(expected, 2.2);
  const double mean = lists.second_state[0].to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(mean, expected, 0.003 * expected);
  const double deviation = lists.second_state[0].to(at::kDouble).std().item<double>();
  EXPECT_LT(deviation, 0.1 * expected);
  EXPECT_GT(deviation, 0);
}

// Where there is no number, and which: 0, NaN or an infinity.
at::Tensor kinds_of(const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kFloat);
  return at::where(at::isfinite(wide), at::zeros_like(wide),
                   at::where(at::isnan(wide), at::full_like(wide, 2), at::sign(wide)));
}

TEST(Bf16Moments, WhatIsNotFiniteIsWhereFp32HasIt) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float largest = std::numeric_limits<float>::max();
  const at::Tensor gradient =
      at::tensor({1.0F, nan, infinity, -infinity, 1e30F, largest, 0.0F, 1e-30F});
  for (const Update update :
       {Update(update_adamw_with_bf16_moments), Update(update_adamw_by_operators)}) {
    FusedLists lists = lists_of(at::ones({8}, at::kFloat));
    FusedLists wide = lists_of(at::ones({8}, at::kFloat));
    wide.first_state = {at::zeros({8}, at::kFloat)};
    wide.second_state = {at::zeros({8}, at::kFloat)};
    wide.chances.clear();
    for (int i = 0; i < 3; ++i) {
      step(lists, gradient, in_bf16(), update);
      step(wide, gradient, in_bf16(), update_adamw);
      EXPECT_TRUE(at::equal(kinds_of(lists.params[0]), kinds_of(wide.params[0])));
      EXPECT_TRUE(at::equal(kinds_of(lists.first_state[0]), kinds_of(wide.first_state[0])));
      EXPECT_TRUE(at::equal(kinds_of(lists.second_state[0]), kinds_of(wide.second_state[0])));
    }
    EXPECT_TRUE(at::isnan(lists.params[0][1]).item<bool>());
    EXPECT_TRUE(at::isinf(lists.second_state[0][2]).item<bool>());
    EXPECT_EQ(lists.second_state[0][6].item<float>(), 0.0F);
  }
}

TEST(Bf16Moments, AStridedGradientCountsAsItIs) {
  const at::Tensor gradient = gradient_of(24, 5).view({4, 6});
  FusedLists plain = lists_of(at::ones({6, 4}, at::kFloat));
  FusedLists strided = lists_of(at::ones({6, 4}, at::kFloat));
  strided.grads[0] = gradient.clone().t();
  strided.steps[0].add_(1);
  const GradScale scale = at::scalar_tensor(2.0, at::kFloat);
  update_adamw_with_bf16_moments(strided, in_bf16(), 1e-2, scale);
  step(plain, gradient.t(), in_bf16(), update_adamw_with_bf16_moments, scale);
  EXPECT_TRUE(at::equal(strided.params[0], plain.params[0]));
  EXPECT_TRUE(at::equal(strided.grads[0], plain.grads[0]));
}

// ---- of shards

struct ShardedRun {
  ShardedRun(const std::shared_ptr<World>& world, const AdamWOptions& options,
             int64_t fsdp_size = 0, const fsdp::Policy& policy = {})
      : model(seed(make_linears({8, 12, 4}))),
        root(fsdp::fully_shard(model, Mesh::for_fsdp(world, fsdp_size), policy)) {
    root->parameters();
    optimizer = make_adamw(root, options);
  }

  // With gradients that each element has wherever it is.
  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      for (fsdp::ShardedParam* param : root->parameters()) {
        const fsdp::ShardLayout& layout = param->layout();
        const auto number = static_cast<uint64_t>(i) * 100 + param->name().size();
        const at::Tensor whole =
            gradient_of(layout.global_numel(), number).view(layout.global_shape);
        param->add_sharded_grad(
            whole
                .narrow(
                    layout.dim,
                    std::min(layout.start, layout.global_shape[static_cast<size_t>(layout.dim)]),
                    layout.length)
                .clone());
      }
      optimizer->step(1.5);
      optimizer->zero_grad();
    }
  }

  std::map<std::string, at::Tensor> tensors() {
    std::map<std::string, at::Tensor> all;
    for (size_t i = 0; i < optimizer->params().size(); ++i) {
      const fsdp::ShardedParam& param = *optimizer->params()[i];
      all.emplace(param.name(), fsdp::full_parameter(*root, param));
      for (const OptimizerState& state : optimizer->state(i)) {
        all.emplace(param.name() + "." + state.name,
                    state.is_sharded ? fsdp::full_value(*root, param, state.tensor) : state.tensor);
      }
    }
    return all;
  }

  std::shared_ptr<nn::Module> model;
  std::shared_ptr<fsdp::Unit> root;
  std::unique_ptr<Optimizer> optimizer;
};

std::map<std::string, at::Tensor> trained(int ranks, int64_t fsdp_size = 0,
                                          const fsdp::Policy& policy = {}) {
  std::map<std::string, at::Tensor> found;
  run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
    ShardedRun run(world, in_bf16(), fsdp_size, policy);
    run.train(12);
    const auto tensors = run.tensors();
    if (world->rank() == 0) {
      found = tensors;
    }
  });
  return found;
}

void expect_same_bits(const std::map<std::string, at::Tensor>& a,
                      const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  }
}

TEST(Bf16Moments, AreTheSameBitsOnAnyNumberOfRanks) {
  const auto expected = trained(1);
  EXPECT_EQ(expected.at("0.weight.exp_avg_sq").scalar_type(), at::kBFloat16);
  for (const int ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    expect_same_bits(trained(ranks), expected);
  }
  SCOPED_TRACE("2 x 2");
  expect_same_bits(trained(4, 2), expected);
}

TEST(Bf16Moments, AreTheSameBitsAlongAnyDim) {
  fsdp::Policy policy;
  policy.shard_dim = [](const std::string& /*name*/, const at::Tensor& parameter) {
    return parameter.dim() == 2 ? 1 : 0;
  };
  expect_same_bits(trained(2, 0, policy), trained(1));
}

TEST(Bf16Moments, TakeHalfTheMemory) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    AdamWOptions options = in_bf16();
    ShardedRun halved(world, options);
    options.state_dtype = at::kFloat;
    ShardedRun wide(world, options);
    halved.train(1);
    wide.train(1);
    const size_t steps = halved.optimizer->params().size() * sizeof(float);
    EXPECT_EQ(2 * (halved.optimizer->state_bytes() - steps), wide.optimizer->state_bytes() - steps);
  });
}

TEST(Bf16Moments, TrainAsThoseInFp32) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    const auto loss_after = [&](std::optional<at::ScalarType> dtype) {
      AdamWOptions options{5e-3, 0.9, 0.999, 1e-8, 0.01};
      options.state_dtype = dtype;
      ShardedRun run(world, options);
      const at::Tensor inputs = gradient_of(64 * 8, 9).view({64, 8}).clamp(-1, 1);
      const at::Tensor targets = at::sin(inputs.narrow(1, 0, 4) * 3);
      double loss = 0;
      for (int i = 0; i < 600; ++i) {
        const at::Tensor error = (*run.model)(inputs)-targets;
        const at::Tensor mean = error.square().mean();
        mean.backward();
        run.optimizer->step();
        run.optimizer->zero_grad();
        loss = mean.item<double>();
      }
      return loss;
    };
    const double wide = loss_after(std::nullopt);
    // The loss has nearly vanished, on a full batch, where nothing else scatters: 11 % more.
    EXPECT_NEAR(loss_after(at::kBFloat16), wide, 0.2 * wide);
  });
}

Code code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("state_dtype"), std::string::npos) << error.message();
    return error.code();
  }
  ADD_FAILURE() << "expected an error";
  return Code::kInternal;
}

TEST(Bf16Moments, OfParametersInBf16AreRefused) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    const auto model = seed(make_linears({4, 5}));
    const auto root = fsdp::fully_shard(model, Mesh::for_fsdp(world, 0), {});
    root->parameters().front()->cast_shard(at::kBFloat16);
    EXPECT_EQ(code_of([&] { make_adamw(root, in_bf16()); }), Code::kUnsupported);
  });
}

TEST(Bf16Moments, AreTheWholeOptimizers) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    ShardedRun run(world, in_bf16());
    AdamWOptions options = in_bf16();
    add_group(*run.optimizer, {"0.bias"}, options);
    options.state_dtype = std::nullopt;
    add_group(*run.optimizer, {"2.bias"}, options);
    for (const size_t index : {0U, 1U, 2U, 3U}) {
      EXPECT_EQ(run.optimizer->state(index)[1].tensor.scalar_type(), at::kBFloat16);
    }
    options.state_dtype = at::kFloat;
    EXPECT_EQ(code_of([&] { add_group(*run.optimizer, {"2.weight"}, options); }),
              Code::kInvalidArgument);
    const auto muon = make_muon(run.root, {});
    options.state_dtype = at::kBFloat16;
    EXPECT_EQ(code_of([&] { add_group(*muon, {"2.weight"}, options); }), Code::kInvalidArgument);
    options.state_dtype = at::kHalf;
    EXPECT_EQ(code_of([&] { make_adamw(run.root, options); }), Code::kInvalidArgument);
  });
}

}  // namespace
}  // namespace fsdp2::train
