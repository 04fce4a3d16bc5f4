// Checklist, user callbacks around the parameter all-gather: EXT.
#include <gtest/gtest.h>

#include "core/nn/seeded_init.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

// What the callbacks were told.
struct Told {
  int64_t ranks = 0;
  int ndim = 0;
  at::ScalarType target = at::kLong;
};

// Sends the shard in bf16.
fsdp::AllGatherExtension in_bf16(Told& told) {
  fsdp::AllGatherExtension extension;
  extension.pre_all_gather = [&told](const fsdp::ShardedParam& param, const at::Tensor& chunk,
                                     const Mesh& mesh) {
    told = {mesh.n_ranks(), mesh.ndim(), param.compute_dtype()};
    return chunk.to(at::kBFloat16);
  };
  extension.post_all_gather = [](const fsdp::ShardedParam& /*param*/, const at::Tensor& pieces,
                                 const at::Tensor& out) { out.copy_(pieces); };
  return extension;
}

std::shared_ptr<Sequence> three_mlps() {
  std::vector<ModulePtr> items;
  for (int i = 0; i < 3; ++i) {
    items.push_back(std::make_shared<Mlp>(MlpOptions{8, 4, /*has_bias=*/false}));
  }
  return seed(std::make_shared<Sequence>(items));
}

UnitPtr shard_with_extension(const std::shared_ptr<Sequence>& model, const MeshPtr& mesh,
                             const Policy& policy, Told& told) {
  const UnitPtr root = shard_items_and_root(model, mesh, policy);
  for (const ModulePtr& item : model->items) {
    unit_of(*item).set_all_gather_extension(in_bf16(told));
  }
  return root;
}

void train_three_steps(nn::Module& model, Unit& root, int rank) {
  PlainOptimizer optimizer(trainable_shards(root), Rule::kAdam, 1e-2);
  for (int step = 0; step < 3; ++step) {
    model(random_input({2, 8}, step, rank)).sum().backward();
    for (const fsdp::ShardedParam* param : root.parameters()) {
      ASSERT_EQ(param->sharded().grad().scalar_type(), at::kFloat) << param->name();
    }
    optimizer.step();
    root.zero_grad();
  }
}

TEST(ChecklistExt, EXT1_CallbacksOfADeferredModelSeeTheTargetDtype) {
  run_ranks_by_both_schedules(8, [](const WorldPtr& world, Schedule schedule) {
    const auto model = three_mlps();
    for (const at::Tensor& parameter : model->parameters()) {
      parameter.set_data(
          nn::deferred_parameter(parameter.sizes(), parameter.scalar_type()).detach());
    }
    Policy policy = policy_true(schedule);
    policy.mixed_precision.param_dtype = at::kBFloat16;
    Told told;
    const UnitPtr root = shard_with_extension(model, flat_mesh(world), policy, told);
    nn::SeededInit init(7);
    load_parameters(*root, init);
    train_three_steps(*model, *root, world->rank());
    EXPECT_EQ(told.target, at::kBFloat16);
  });
}

TEST(ChecklistExt, EXT2_WhatTravelsIsWhatTheCallbackReturned) {
  run_ranks_by_both_schedules(8, [](const WorldPtr& world, Schedule schedule) {
    const auto model = three_mlps();
    const auto plain = three_mlps();
    const auto original = three_mlps();
    Told told;
    const UnitPtr root =
        shard_with_extension(model, flat_mesh(world), policy_false(schedule), told);
    const UnitPtr plain_root =
        shard_items_and_root(plain, flat_mesh(world), policy_false(schedule));
    const at::Tensor x = random_input({2, 8}, 0, world->rank());
    const at::Tensor output = (*model)(x);
    (*plain)(x);
    EXPECT_EQ(2 * root->comm_counters().all_gather_bytes,
              plain_root->comm_counters().all_gather_bytes);
    for (const fsdp::ShardedParam* param : root->parameters()) {
      const at::Tensor full = find_parameter(*original, param->name()).detach();
      EXPECT_TRUE(param->unsharded().equal(full.to(at::kBFloat16).to(at::kFloat))) << param->name();
    }
    output.sum().backward();
    root->zero_grad();
    train_three_steps(*model, *root, world->rank());
    EXPECT_EQ(told.target, at::kFloat);
  });
}

TEST(ChecklistExt, EXT3_TheMeshOfTheCallbackIsTheShardGroups) {
  run_ranks_by_both_schedules(8, [](const WorldPtr& world, Schedule schedule) {
    const auto model = three_mlps();
    Told told;
    const UnitPtr root =
        shard_with_extension(model, hybrid_mesh(world, 4), policy_true(schedule), told);
    train_three_steps(*model, *root, world->rank());
    EXPECT_EQ(told.ndim, 1);
    EXPECT_EQ(told.ranks, 4);
  });
}

}  // namespace
}  // namespace fsdp2::checklist
