// Checklist, gradient accumulation and reduction control: ACC.
#include <gtest/gtest.h>

#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

// Linear 32 -> 32, which the root keeps, and three MLP(32), each a group.
std::shared_ptr<Sequence> linear_and_mlps() {
  std::vector<ModulePtr> items{std::make_shared<Linear>(32, 32)};
  for (int i = 0; i < 3; ++i) {
    items.push_back(std::make_shared<Mlp>(32));
  }
  return seed(std::make_shared<Sequence>(items));
}

struct PerStep {
  int64_t reduce_scatters;
  int64_t all_gathers;
  int64_t all_reduces = 0;
};

// Sets the sync of gradients for a microbatch; `last`: of the last in a step.
using SetSync = std::function<void(const Sequence& model, Unit& root, bool last)>;

void sync_all_on_last(const Sequence& /*model*/, Unit& root, bool last) {
  root.set_requires_gradient_sync(last);
}
void sync_two_mlps_on_last(const Sequence& model, Unit& /*root*/, bool last) {
  unit_of(*model.items[1]).set_requires_gradient_sync(last);
  unit_of(*model.items[2]).set_requires_gradient_sync(last);
}
void sync_root_on_last(const Sequence& /*model*/, Unit& root, bool last) {
  root.set_requires_gradient_sync(last, /*recurse=*/false);
}

struct Accumulation {
  Policy policy;
  SetSync set_sync;
  PerStep expected;
  bool fills_with_zero = false;
  int64_t shards = 0;  // to a replica; 0: no replicas
};

// Five steps of three microbatches (2, 32) on 4 ranks, by either schedule.
void expect_accumulation(Accumulation c, fsdp::Schedule schedule) {
  c.policy.schedule = schedule;
  run_ranks(4, [&](const WorldPtr& world) {
    const auto model = linear_and_mlps();
    const auto reference = linear_and_mlps();
    const UnitPtr root = shard_each({model->items[1], model->items[2], model->items[3], model},
                                    hybrid_mesh(world, c.shards), c.policy);
    Training training;
    training.steps = 5;
    training.microbatches = 3;
    training.fills_with_zero = c.fills_with_zero;
    training.before = [&](int micro) { c.set_sync(*model, *root, micro == 2); };
    expect_same_training({*root, *model, *reference, world->rank(), 4}, training,
                         [](nn::Module& module, int batch, int rank) {
                           return module(random_input({2, 32}, batch, rank)).sum();
                         });
    EXPECT_EQ(root->scheduler().stats().reduce_scatters, 5 * c.expected.reduce_scatters);
    EXPECT_EQ(root->scheduler().stats().all_gathers, 5 * c.expected.all_gathers);
    EXPECT_EQ(root->scheduler().stats().all_reduces, 5 * c.expected.all_reduces);
  });
}

void expect_accumulation(const Accumulation& c) {
  expect_accumulation(c, fsdp::Schedule::kOnUse);
  expect_accumulation(c, fsdp::Schedule::kAgreed);
}

TEST(ChecklistAcc, ACC1_SyncOnTheLastMicrobatchOnly) {
  expect_accumulation({policy_true(), sync_all_on_last, {4, 24}});
  expect_accumulation({policy_of_smaller(2), sync_all_on_last, {4, 24}});
  expect_accumulation({policy_false(), sync_all_on_last, {4, 12}});
  expect_accumulation({policy_true(), sync_all_on_last, {4, 24}, /*fills_with_zero=*/true});
}

TEST(ChecklistAcc, ACC2_SyncOffForTwoModules) {
  expect_accumulation({policy_true(), sync_two_mlps_on_last, {8, 24}});
  expect_accumulation({policy_of_smaller(2), sync_two_mlps_on_last, {8, 24}});
  expect_accumulation({policy_false(), sync_two_mlps_on_last, {8, 12}});
  Policy offloaded = policy_true();
  offloaded.offload.to_cpu = true;
  offloaded.offload.pin_memory = false;
  expect_accumulation({offloaded, sync_two_mlps_on_last, {8, 24}});
}

TEST(ChecklistAcc, ACC3_SyncOffForTheRootAlone) {
  expect_accumulation({policy_true(), sync_root_on_last, {10, 24}});
  expect_accumulation({policy_false(), sync_root_on_last, {10, 12}});
}

TEST(ChecklistAcc, ACC4_HybridSyncOnTheLastMicrobatchOnly) {
  const bool drops = false;
  expect_accumulation({policy_true(), sync_all_on_last, {4, 24, 4}, drops, /*shards=*/2});
  expect_accumulation({policy_true(), sync_two_mlps_on_last, {8, 24, 8}, drops, /*shards=*/2});
}

// TinyTransformer(2), blocks and root, with its reference.
struct Transformers {
  std::shared_ptr<TinyTransformer> model;
  std::shared_ptr<TinyTransformer> reference;
  UnitPtr root;
  Pair pair;

  Transformers(const WorldPtr& world, const MeshPtr& mesh, const Policy& policy, bool tied = true)
      : model(seed(std::make_shared<TinyTransformer>(TransformerOptions{2, 8, 16, tied}))),
        reference(seed(std::make_shared<TinyTransformer>(TransformerOptions{2, 8, 16, tied}))),
        root(shard_blocks_and_root(model, mesh, policy)),
        pair{*root, *model, *reference, world->rank(), world->size()} {}
};

at::Tensor token_loss(nn::Module& module, int batch, int rank) {
  return module(random_tokens({2, 16}, 8, batch, rank)).square().sum();
}

TEST(ChecklistAcc, ACC5_LastBackwardOnTheThirdMicrobatch) {
  run_ranks(4, [](const WorldPtr& world) {
    const Transformers t(world, flat_mesh(world), policy_false());
    Training training;
    training.steps = 3;
    training.rule = Rule::kAdamW;
    training.microbatches = 3;
    training.before = [&](int micro) {
      t.root->set_requires_gradient_sync(micro == 2);
      t.root->set_is_last_backward(micro == 2);
    };
    expect_same_training(t.pair, training, token_loss);
  });
}

TEST(ChecklistAcc, ACC6_ADivideFactorOfTheRoot) {
  for (const double factor : {8.0, 4.0}) {
    run_ranks(4, [&](const WorldPtr& world) {
      const Transformers t(world, flat_mesh(world), policy_false(), /*tied=*/false);
      t.root->set_gradient_divide_factor(factor);
      Training training;
      training.rule = Rule::kAdamW;
      training.after_reference = [&] {
        for (const fsdp::ShardedParam* param : t.root->group()->params()) {
          find_parameter(*t.reference, param->name()).grad().mul_(4.0 / factor);
        }
      };
      expect_same_training(t.pair, training, token_loss);
    });
  }
}

// The gradients after one backward of a tree on which `set` was called.
std::vector<at::Tensor> gradients_of_step(const WorldPtr& world, const MeshPtr& mesh,
                                          const Policy& policy,
                                          const std::function<void(Unit& unit)>& set) {
  const Transformers t(world, mesh, policy);
  for (const auto& block : t.model->blocks) {
    set(unit_of(*block));
  }
  set(*t.root);
  token_loss(*t.model, 0, world->rank()).backward();
  EXPECT_EQ(t.root->scheduler().stats().reduce_scatters, 3);
  EXPECT_EQ(t.root->scheduler().stats().all_reduces, mesh->ndim() == 2 ? 3 : 0);
  std::vector<at::Tensor> gradients;
  for (const fsdp::ShardedParam* param : t.root->parameters()) {
    gradients.push_back(param->sharded().grad());
  }
  return gradients;
}

void expect_sums_change_nothing(const WorldPtr& world, const MeshPtr& mesh, const Policy& policy,
                                std::optional<double> factor, Tolerance tolerance) {
  const auto gradients = [&](bool only_sums) {
    return gradients_of_step(world, mesh, policy, [&](Unit& unit) {
      unit.set_force_sum_reduction_for_comms(only_sums);
      if (factor) {
        unit.set_gradient_divide_factor(*factor);
      }
    });
  };
  const std::vector<at::Tensor> with = gradients(true);
  const std::vector<at::Tensor> without = gradients(false);
  for (size_t i = 0; i < with.size(); ++i) {
    expect_close(with[i], without[i], tolerance, "gradient " + std::to_string(i));
  }
}

TEST(ChecklistAcc, ACC7_OnlySumReductionsGiveTheSameGradients) {
  run_ranks(2, [](const WorldPtr& world) {
    const MeshPtr mesh = flat_mesh(world);
    expect_sums_change_nothing(world, mesh, policy_unset(), std::nullopt, kT32);
    expect_sums_change_nothing(world, mesh, policy_unset(), 3.0, kT32);
  });
}

TEST(ChecklistAcc, ACC8_HybridOnlySumReductionsGiveTheSameGradients) {
  run_ranks(4, [](const WorldPtr& world) {
    const MeshPtr mesh = hybrid_mesh(world, 2);
    expect_sums_change_nothing(world, mesh, policy_unset(), std::nullopt, kT32);
    Policy half = policy_unset();
    half.mixed_precision.reduce_dtype = at::kHalf;
    expect_sums_change_nothing(world, mesh, half, std::nullopt, kExact);
  });
}

TEST(ChecklistAcc, ACC9_ADivideFactorOnOneRank) {
  run_ranks(1, [](const WorldPtr& world) {
    const std::vector<std::pair<std::optional<double>, double>> cases = {
        {std::nullopt, 3.0}, {1.0, 3.0}, {2.0, 1.5}};
    for (const auto& [factor, expected] : cases) {
      const auto model = seed(std::make_shared<Linear>(8, 4, /*has_bias=*/false));
      const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset());
      if (factor) {
        root->set_gradient_divide_factor(*factor);
      }
      (*model)(at::ones({3, 8})).sum().backward();
      const at::Tensor grad = root->parameters()[0]->sharded().grad();
      EXPECT_TRUE(grad.equal(at::full({4, 8}, expected))) << expected;
      EXPECT_EQ(root->comm_counters().reduce_scatters, 0);
      EXPECT_EQ(root->comm_counters().all_reduces, 0);
    }
  });
}

TEST(ChecklistAcc, ACC10_AWideLinearOnOneRank) {
  run_ranks(1, [](const WorldPtr& world) {
    const auto model = seed(std::make_shared<Linear>(1024, 1025));
    const auto reference = seed(std::make_shared<Linear>(1024, 1025));
    const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset());
    Training training;
    training.steps = 3;
    expect_same_training({*root, *model, *reference, 0, 1}, training,
                         [](nn::Module& module, int batch, int rank) {
                           return module(random_input({4, 1024}, batch, rank)).sum();
                         });
  });
}

}  // namespace
}  // namespace fsdp2::checklist
