// Checkpointed segments inside units, around them and around several: the gradients, losses and
// collectives of the run without.
#include "core/nn/recompute/activation_checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "core/base/error.h"
#include "core/fsdp/fully_shard.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

using Tensors = std::vector<at::Tensor>;
using nn::checkpoint_activations;

constexpr int64_t kWidth = 4;

// Its children one after the other, then a function of its own.
class Sequence : public nn::Module {
 public:
  explicit Sequence(std::vector<std::shared_ptr<nn::Module>> steps)
      : nn::Module("Sequence"), steps_(std::move(steps)) {
    for (size_t i = 0; i < steps_.size(); ++i) {
      register_module(std::to_string(i), steps_[i]);
    }
  }
  bool ends_in_tanh = false;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    at::Tensor x = inputs[0].toTensor();
    for (const auto& step : steps_) {
      x = (*step)(x);
    }
    return ends_in_tanh ? x.tanh() : x;
  }

 private:
  std::vector<std::shared_ptr<nn::Module>> steps_;
};

std::shared_ptr<Sequence> sequence(std::vector<std::shared_ptr<nn::Module>> steps) {
  return std::make_shared<Sequence>(std::move(steps));
}

at::Tensor input(int seed = 0) {
  const auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  return at::randn({3, kWidth}, generator, at::kFloat);
}

Tensors parameter_gradients(const nn::Module& model) {
  Tensors all;
  for (const at::Tensor& parameter : model.parameters()) {
    all.push_back(parameter.grad());
  }
  return all;
}

Tensors full_gradients(Unit& root) {
  Tensors all;
  for (const ShardedParam* param : root.parameters()) {
    all.push_back(full_gradient(root, *param));
  }
  return all;
}

void expect_same(const Tensors& got, const Tensors& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), expected[i].defined()) << i;
    if (got[i].defined()) {
      EXPECT_LE((got[i] - expected[i]).abs().max().item<double>(), tolerance) << i;
    }
  }
}

// What a segment encloses.
enum class Around {
  kNothing,           // no segment
  kLayer,             // each layer, before it is sharded
  kShardedLayer,      // each layer, after
  kHalves,            // each linear inside a layer
  kUnit,              // a module with one unit below it
  kAllUnits,          // a module with all units below it
  kAllUnitsAndLayer,  // segments in a segment
};

// Two layers in a row without a parameter of the root's own; each a unit.
struct Layers {
  explicit Layers(Around around) {
    for (int i = 0; i < 2; ++i) {
      auto stack = TinyStack({kWidth, 6, 2});  // for its seeded values
      layers.push_back(stack.blocks[static_cast<size_t>(i)]);
    }
    switch (around) {
      case Around::kUnit:
        model = sequence({sequence({layers[0]}), sequence({layers[1]})});
        break;
      case Around::kAllUnits:
      case Around::kAllUnitsAndLayer:
        model = sequence({sequence({layers[0], layers[1]})});
        break;
      default:
        model = sequence({layers[0], layers[1]});
    }
  }

  void shard(const std::shared_ptr<World>& world, const Policy& policy, Around around) {
    const auto mesh = Mesh::for_fsdp(world, 0);
    for (const auto& layer : layers) {
      if (around == Around::kLayer || around == Around::kAllUnitsAndLayer) {
        checkpoint_activations(*layer);
      }
      if (around == Around::kHalves) {
        nn::checkpoint_by_kind(*layer, {"TinyLinear"});
      }
      fully_shard(layer, mesh, policy);
      if (around == Around::kShardedLayer) {
        checkpoint_activations(*layer);
      }
    }
    if (around == Around::kUnit || around == Around::kAllUnits ||
        around == Around::kAllUnitsAndLayer) {
      for (const auto& [name, child] : model->child_modules()) {
        checkpoint_activations(*child);
      }
    }
    root = fully_shard(model, mesh, policy);
  }

  std::vector<std::shared_ptr<TinyBlock>> layers;
  std::shared_ptr<Sequence> model;
  std::shared_ptr<Unit> root;
};

struct Outcome {
  double loss = 0;
  Tensors gradients;
  int64_t all_gathers = 0;
  int64_t reduce_scatters = 0;
  int64_t peak_unsharded_bytes = 0;
};

Outcome step(const std::shared_ptr<World>& world, Around around, const Policy& policy = {}) {
  Layers l(around);
  l.shard(world, policy, around);
  const at::Tensor loss = (*l.model)(input()).to(at::kFloat).square().sum();
  loss.backward();
  const Stats& stats = l.root->scheduler().stats();
  const Outcome outcome{loss.item<double>(),
                        {},
                        stats.all_gathers,
                        stats.reduce_scatters,
                        stats.peak_unsharded_bytes};
  EXPECT_EQ(stats.unsharded_bytes, 0);
  Outcome full = outcome;
  full.gradients = full_gradients(*l.root);
  return full;
}

Outcome unsharded_step() {
  const Layers l(Around::kNothing);
  const at::Tensor loss = (*l.model)(input()).square().sum();
  loss.backward();
  return {loss.item<double>(), parameter_gradients(*l.model), 0, 0, 0};
}

const Around kSegments[] = {Around::kLayer, Around::kShardedLayer, Around::kHalves,
                            Around::kUnit,  Around::kAllUnits,     Around::kAllUnitsAndLayer};

TEST(CheckpointedUnits, HaveTheLossesAndGradientsOfThePlainRun) {
  const Outcome plain = unsharded_step();
  for (const int size : {1, 2, 4}) {
    for (const Around around : kSegments) {
      run_ranks(size, [&](const std::shared_ptr<World>& world) {
        const Outcome got = step(world, around);
        const Outcome sharded = step(world, Around::kNothing);
        EXPECT_EQ(got.loss, sharded.loss);
        expect_same(got.gradients, sharded.gradients, 0);
        EXPECT_NEAR(got.loss, plain.loss, 1e-5 * std::abs(plain.loss));
        expect_same(got.gradients, plain.gradients, 1e-4);
      });
    }
  }
}

// Python: checkpoint(fully_shard(layer)) twice makes 4 all-gathers and 2 reduce-scatters.
TEST(CheckpointedUnits, AreGatheredOnceInForwardAndOnceInBackward) {
  for (const Schedule schedule : {Schedule::kAgreed, Schedule::kOnUse}) {
    for (const int prefetch : {0, 1}) {
      for (const Around around : kSegments) {
        run_ranks(2, [&](const std::shared_ptr<World>& world) {
          Policy policy;
          policy.schedule = schedule;
          policy.prefetch = prefetch;
          const Outcome got = step(world, around, policy);
          EXPECT_EQ(got.all_gathers, 4) << static_cast<int>(around);
          EXPECT_EQ(got.reduce_scatters, 2) << static_cast<int>(around);
        });
      }
    }
  }
}

TEST(CheckpointedUnits, HoldNoMoreParametersThanOthers) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Policy policy;
    policy.prefetch = 0;
    const int64_t without = step(world, Around::kNothing, policy).peak_unsharded_bytes;
    for (const Around around :
         {Around::kLayer, Around::kShardedLayer, Around::kHalves, Around::kUnit}) {
      EXPECT_EQ(step(world, around, policy).peak_unsharded_bytes, without);
    }
  });
}

TEST(CheckpointedUnits, WorkUnderEachPolicy) {
  std::vector<Policy> policies(5);
  policies[0].reshard_after_forward = ReshardAfterForward::kAlways;
  policies[1].reshard_after_forward = ReshardAfterForward::kNever;
  policies[2].reshard_after_forward = ReshardAfterForward::kSmaller;
  policies[2].reshard_world = 2;
  policies[3].mixed_precision.param_dtype = at::kBFloat16;
  policies[3].mixed_precision.reduce_dtype = at::kFloat;
  policies[3].mixed_precision.output_dtype = at::kFloat;
  policies[4].comm_path = CommPath::kPacked;
  for (const Policy& policy : policies) {
    for (const Around around : kSegments) {
      run_ranks(4, [&](const std::shared_ptr<World>& world) {
        const Outcome got = step(world, around, policy);
        const Outcome without = step(world, Around::kNothing, policy);
        EXPECT_EQ(got.loss, without.loss);
        expect_same(got.gradients, without.gradients, 0);
      });
    }
  }
}

// The model that the tests below train step by step, with and without segments.
struct Stack {
  std::shared_ptr<TinyStack> model;
  std::shared_ptr<Unit> root;

  Stack(const std::shared_ptr<World>& world, bool segments, const TinyStackOptions& options,
        const Policy& policy = {}) {
    model = std::make_shared<TinyStack>(options);
    root = fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), policy, {"TinyBlock"});
    if (segments) {
      EXPECT_EQ(nn::checkpoint_by_kind(*model, {"TinyBlock"}), options.blocks);
    }
  }
};

void expect_equal_steps(int size, const std::function<void(Stack& stack, int rank)>& train,
                        const TinyStackOptions& options = {kWidth, 6, 3}) {
  run_ranks(size, [&](const std::shared_ptr<World>& world) {
    Stack with(world, true, options);
    Stack without(world, false, options);
    train(with, world->rank());
    train(without, world->rank());
    expect_same(full_gradients(*with.root), full_gradients(*without.root), 0);
    EXPECT_EQ(with.root->scheduler().stats().all_gathers,
              without.root->scheduler().stats().all_gathers);
    EXPECT_EQ(with.root->scheduler().stats().reduce_scatters,
              without.root->scheduler().stats().reduce_scatters);
  });
}

TEST(CheckpointedStack, AccumulatesWithAndWithoutReduction) {
  expect_equal_steps(2, [](Stack& s, int rank) {
    for (const bool sync : {false, true, true}) {
      s.root->set_requires_gradient_sync(sync);
      (*s.model)(input(rank)).square().sum().backward();
    }
  });
}

TEST(CheckpointedStack, TakesSeveralForwardsBeforeBackwards) {
  expect_equal_steps(2, [](Stack& s, int rank) {
    const at::Tensor first = (*s.model)(input(rank)).square().sum();
    const at::Tensor second = (*s.model)(input(rank + 7)).square().sum();
    (first + second).backward();
  });
}

TEST(CheckpointedStack, KeepsItsGraphForAnotherBackward) {
  expect_equal_steps(2, [](Stack& s, int rank) {
    const at::Tensor loss = (*s.model)(input(rank)).square().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
}

TEST(CheckpointedStack, LetsRanksUseDifferentUnits) {
  expect_equal_steps(4, [](Stack& s, int rank) {
    const std::vector<std::vector<int64_t>> routes = {{0, 1, 2}, {2, 0}, {1}, {0}};
    const c10::IValue route(routes[static_cast<size_t>(rank)]);
    (*s.model)(nn::Values{input(rank), route}).toTensor().square().sum().backward();
  });
}

TEST(CheckpointedStack, RunsAUnitTwiceInOneForward) {
  expect_equal_steps(2, [](Stack& s, int rank) {
    const c10::IValue route(std::vector<int64_t>{1, 0, 1});
    (*s.model)(nn::Values{input(rank), route}).toTensor().square().sum().backward();
  });
}

TEST(CheckpointedStack, TakesTiedAndFrozenParameters) {
  TinyStackOptions options{6, 6, 3};
  options.tied = true;
  expect_equal_steps(
      2, [](Stack& s, int rank) { (*s.model)(at::ones({2, 6}) * (rank + 1)).sum().backward(); },
      options);
  options = {kWidth, 6, 3};
  options.frozen_bias = true;
  options.frozen_block = true;
  expect_equal_steps(
      2, [](Stack& s, int rank) { (*s.model)(input(rank)).square().sum().backward(); }, options);
}

std::string every_event(const std::vector<Event>& events) {
  std::string text;
  for (const Event& event : events) {
    static const char* const kNames[] = {"gather", "ready", "free", "reduce", "done"};
    text += std::string(kNames[static_cast<int>(event.kind)]) + ":" + event.group + " ";
  }
  return text;
}

TEST(CheckpointedStack, DoesTheSameThingsInTheSameOrder) {
  for (const bool agreed : {true, false}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      Policy policy;
      policy.schedule = agreed ? Schedule::kAgreed : Schedule::kOnUse;
      const Stack with(world, true, {kWidth, 6, 3}, policy);
      const Stack without(world, false, {kWidth, 6, 3}, policy);
      (*with.model)(input()).sum().backward();
      (*without.model)(input()).sum().backward();
      EXPECT_EQ(every_event(with.root->scheduler().events()),
                every_event(without.root->scheduler().events()));
    });
  }
}

// The segment's last operation asks first, before any unit has heard of the backward.
TEST(SegmentAroundARoot, MayRunAgainBeforeTheRootHearsOfTheBackward) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto gradients = [&](bool segment) {
      const auto block = TinyStack({kWidth, 6, 1}).blocks[0];
      const auto outer = sequence({block});
      outer->ends_in_tanh = true;
      const auto root = fully_shard(block, Mesh::for_fsdp(world, 0), {});
      if (segment) {
        checkpoint_activations(*outer);
      }
      Tensors all;
      for (int repeat = 0; repeat < 2; ++repeat) {
        (*outer)(input(world->rank())).sum().backward();
        EXPECT_EQ(root->scheduler().stats().unsharded_bytes, 0);
        EXPECT_EQ(root->scheduler().stats().reduce_scatters, repeat + 1);
        all = full_gradients(*root);
      }
      return all;
    };
    expect_same(gradients(true), gradients(false), 0);
  });
}

// x -> x, failing when told to.
class Fragile : public nn::Module {
 public:
  Fragile() : nn::Module("Fragile") {}
  bool fails = false;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    if (fails) {
      throw std::out_of_range("broken");
    }
    return inputs[0].toTensor().exp();
  }
};

TEST(CheckpointedUnits, TrainOnAfterAFailedRecomputation) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::for_fsdp(world, 0);
    const auto block = TinyStack({kWidth, 6, 1}).blocks[0];
    const auto fragile = std::make_shared<Fragile>();
    const auto layer = sequence({block, fragile});
    const auto model = sequence({layer});
    fully_shard(block, mesh, {});
    checkpoint_activations(*layer);
    const auto root = fully_shard(model, mesh, {});
    const auto gradients = [&] {
      root->zero_grad();
      (*model)(input(world->rank())).sum().backward();
      return full_gradients(*root);
    };
    const Tensors before = gradients();
    const at::Tensor loss = (*model)(input()).sum();
    fragile->fails = true;
    EXPECT_THROW(loss.backward(), std::out_of_range);
    root->reset();
    fragile->fails = false;
    expect_same(gradients(), before, 0);
  });
}

}  // namespace
}  // namespace fsdp2::fsdp
