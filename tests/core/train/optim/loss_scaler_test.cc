// Dynamic loss scaling: the rule, and steps that follow it.
#include "core/train/optim/loss_scaler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/train/optim/sgd.h"
#include "core/train/step/train_step.h"
#include "tests/core/base/file_fixture.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

LossScalerOptions options_of(double scale, int64_t interval) {
  LossScalerOptions options;
  options.initial_scale = scale;
  options.growth_interval = interval;
  return options;
}

TEST(LossScaler, HalvesAfterAnOverflowAndDoublesAfterARunWithout) {
  LossScaler scaler(options_of(1024.0, 3));
  std::vector<double> scales;
  for (const bool overflowed : {false, false, true, false, false, false, false, true}) {
    scaler.update(overflowed);
    scales.push_back(scaler.scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{1024, 1024, 512, 512, 512, 1024, 1024, 512}));
}

TEST(LossScaler, StaysWhereFp32CanMultiplyAndDivideByIt) {
  LossScaler up(options_of(0x1p127, 1));
  up.update(false);
  EXPECT_EQ(up.scale(), 0x1p127);
  LossScaler down(options_of(1.0, 1000));
  for (int step = 0; step < 2000; ++step) {
    down.update(true);
  }
  EXPECT_EQ(down.scale(), kLeastBackedOff);
  LossScaler below(options_of(0x1p-30, 1));
  below.update(true);
  EXPECT_EQ(below.scale(), 0x1p-30);
}

TEST(LossScaler, GrowsAfterAShorterIntervalThanThatOfItsState) {
  LossScaler scaler(options_of(8.0, 2));
  scaler.set_state({8.0, 5});
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 16.0);
}

TEST(LossScaler, GoesOnFromItsState) {
  LossScaler scaler(options_of(8.0, 3));
  scaler.update(false);
  scaler.update(false);
  LossScaler other(options_of(1.0, 3));
  other.set_state(scaler.state());
  other.update(false);
  EXPECT_EQ(other.scale(), 16.0);
}

TEST(LossScaler, RefusesOptionsThatMakeNoSense) {
  for (const double scale : {0.0, -1.0, 1e-320, 1e39, std::nan(""), HUGE_VAL}) {
    const Error error = error_of([&] { LossScaler scaler(options_of(scale, 1)); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(error.message().rfind("loss scale: expected 1.18e-38 to 3.4e+38, found ", 0), 0U);
  }
  EXPECT_EQ(error_of([] { LossScaler scaler(options_of(1.0, 0)); }).message(),
            "growth interval of the loss scale: expected at least 1 step, found 0");
}

// loss = mean of (weight * input), so that the gradient of the weight is the input's mean.
class Product : public nn::Module {
 public:
  Product() : Module("Product") { weight = register_parameter("weight", at::full({6}, 2.0)); }

  at::Tensor weight;

 protected:
  c10::IValue forward(nn::Values inputs) override { return (weight * inputs[0].toTensor()).sum(); }
};

struct ScaledRun {
  ScaledRun(const std::shared_ptr<World>& world, std::optional<LossScalerOptions> scaling,
            NotFinite not_finite = NotFinite::kError) {
    model = std::make_shared<Product>();
    root = fsdp::fully_shard(model, Mesh::for_fsdp(world, 0), {});
    StepOptions options;
    options.max_grad_norm = 1.0;
    options.loss_scaling = scaling;
    options.not_finite = not_finite;
    step = std::make_unique<TrainStep>(model, std::shared_ptr<Optimizer>(make_sgd(root, {0.5})),
                                       options);
  }

  StepResult take(double input) { return step->run({{at::full({6}, input)}}); }
  at::Tensor weight() const { return fsdp::full_parameter(*root, *root->parameters()[0]); }

  std::shared_ptr<Product> model;
  std::shared_ptr<fsdp::Unit> root;
  std::unique_ptr<TrainStep> step;
};

TEST(LossScaling, ChangesNoBitOfAStepWithoutOverflow) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    ScaledRun plain(world, std::nullopt);
    ScaledRun scaled(world, options_of(1024.0, 2));
    for (int i = 0; i < 3; ++i) {
      const StepResult expected = plain.take(0.25 * (world->rank() + 1));
      const StepResult result = scaled.take(0.25 * (world->rank() + 1));
      EXPECT_EQ(result.loss, expected.loss);
      EXPECT_EQ(result.grad_norm, expected.grad_norm);
      EXPECT_EQ(result.loss_scale, i < 2 ? 1024.0 : 2048.0);
      EXPECT_TRUE(result.applied);
      EXPECT_TRUE(scaled.weight().equal(plain.weight()));
    }
  });
}

TEST(LossScaling, AnOverflowOnOneRankSkipsTheUpdateOnAll) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    ScaledRun run(world, options_of(1024.0, 100));
    const at::Tensor before = run.weight();
    const double input = world->rank() == 1 ? std::numeric_limits<float>::max() : 1.0;
    const StepResult overflowed = run.take(input);
    EXPECT_FALSE(overflowed.applied);
    EXPECT_EQ(overflowed.step, 0);
    EXPECT_TRUE(run.weight().equal(before));
    const StepResult next = run.take(1.0);
    EXPECT_TRUE(next.applied);
    EXPECT_EQ(next.step, 1);
    EXPECT_EQ(next.loss_scale, 512.0);
    EXPECT_FALSE(run.weight().equal(before));
  });
}

TEST(LossScaling, WithoutItEveryUpdateIsAppliedIfAskedFor) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    ScaledRun run(world, std::nullopt, NotFinite::kApply);
    EXPECT_TRUE(run.take(std::nan("")).applied);
    EXPECT_EQ(run.step->loss_scaler(), nullptr);
  });
}

}  // namespace
}  // namespace fsdp2::train
