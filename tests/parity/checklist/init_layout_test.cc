// Checklist, meshes, where each parameter lies and how it gets its values: the other lines of INIT.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/nn/seeded_init.h"
#include "tests/parity/checklist/expected_error.h"
#include "tests/parity/checklist/mlp_rows.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

TEST(ChecklistInit, INIT2_AMeshOfThreeDimsIsRefused) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto model = seed(std::make_shared<Mlp>(8));
    const MeshPtr mesh = Mesh::create(world, {4, 1, 1}, {"a", "b", "c"});
    expect_error(Code::kInvalidArgument, {"Mesh(a=4, b=1, c=1)", "1 dim", "2 dims"},
                 [&] { fsdp::fully_shard(model, mesh, policy_unset()); });
    EXPECT_EQ(fsdp::find_unit(*model), nullptr);
    expect_plain(*model);
  });
}

TEST(ChecklistInit, INIT3_AHybridMeshNeedsNames) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto model = seed(std::make_shared<Mlp>(8));
    expect_error(Code::kInvalidArgument, {"name"}, [&] {
      fsdp::fully_shard(model, Mesh::create(world, {2, 2}, {}), policy_unset());
    });
    expect_plain(*model);
  });
}

void expect_rows_of_the_original(Unit& root, const nn::Module& original, const World& world) {
  for (const fsdp::ShardedParam* param : root.parameters()) {
    const at::Tensor full = find_parameter(original, param->name());
    const int64_t rows = full.size(0);
    const int64_t chunk = (rows + world.size() - 1) / world.size();
    const int64_t begin = std::min<int64_t>(rows, world.rank() * chunk);
    const int64_t end = std::min<int64_t>(rows, begin + chunk);
    EXPECT_EQ(param->layout().global_shape, full.sizes().vec()) << param->name();
    EXPECT_EQ(param->unsharded().strides(), full.strides()) << param->name();
    EXPECT_EQ(param->layout().dim, 0) << param->name();
    EXPECT_TRUE(param->sharded().equal(full.narrow(0, begin, end - begin))) << param->name();
  }
}

TEST(ChecklistInit, INIT12_EveryRankHoldsItsRowsOfTheOriginal) {
  const auto make = [] { return row_of(3, [] { return std::make_shared<Mlp>(3, 3); }); };
  run_ranks(2, [&](const WorldPtr& world) {
    const auto model = make();
    const UnitPtr root = shard_items_and_root(model, flat_mesh(world), policy_unset());
    expect_rows_of_the_original(*root, *make(), *world);
    const auto shared = mlps_with_shared_linear(3, 3);
    const UnitPtr shared_root = fsdp::fully_shard(shared, flat_mesh(world), policy_unset());
    expect_rows_of_the_original(*shared_root, *mlps_with_shared_linear(3, 3), *world);
  });
}

class WithScalar : public nn::Module {
 public:
  WithScalar() : nn::Module("WithScalar") { register_parameter("scalar_p", at::zeros({})); }

 protected:
  c10::IValue forward(nn::Values inputs) override { return inputs[0]; }
};

TEST(ChecklistInit, INIT13_AScalarParameterIsRefusedByName) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = std::make_shared<WithScalar>();
    expect_error(Code::kInvalidArgument, {"scalar_p", "[1]"},
                 [&] { fsdp::fully_shard(model, flat_mesh(world), policy_unset()); });
  });
}

TEST(ChecklistInit, INIT17_DeferredModulesAreMaterialisedShardByShard) {
  for (const int64_t width : {8, 3}) {
    for (const bool mixed : {false, true}) {
      run_ranks(4, [&](const WorldPtr& world) {
        const auto model = std::make_shared<Sequence>(std::vector<ModulePtr>{
            std::make_shared<Mlp>(MlpOptions{width, 1, false, /*has_buffer=*/true}),
            std::make_shared<Mlp>(MlpOptions{width, 1, false})});
        defer(*model);
        Policy policy = policy_unset();
        if (mixed) {
          policy.mixed_precision.param_dtype = at::kBFloat16;
          policy.mixed_precision.reduce_dtype = at::kFloat;
        }
        const UnitPtr root = shard_items_and_root(model, flat_mesh(world), policy);
        for (const fsdp::ShardedParam* param : root->parameters()) {
          EXPECT_TRUE(nn::has_no_memory(param->unsharded())) << param->name();
          EXPECT_EQ(param->shard_flat().numel(), param->layout().padded_numel());
          param->local_values().fill_(1337.0);
        }
        nn::SeededInit init(7);
        load_parameters(*root, init);
        PlainOptimizer optimizer(trainable_shards(*root), Rule::kAdam, 1e-2);
        for (const fsdp::ShardedParam* param : root->parameters()) {
          EXPECT_FALSE(param->sharded().eq(1337.0).any().item<bool>()) << param->name();
        }
        (*model)(random_input({4, width}, 0, world->rank())).sum().backward();
        optimizer.step();
      });
    }
  }
}

TEST(ChecklistInit, INIT18_AForwardWithoutValuesNamesTheParameters) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = mlps(2);
    defer(*model);
    shard_items_and_root(model, flat_mesh(world), policy_unset());
    expect_error(Code::kWrongState,
                 {"0.in_proj.weight", "0.in_proj.bias", "0.out_proj.weight", "0.out_proj.bias"},
                 [&] { (*model)(at::ones({2, 8})); });
  });
}

TEST(ChecklistInit, INIT19_AMeshOfTheGroupShardsLikeTheSlice) {
  run_ranks(4, [](const WorldPtr& world) {
    const MeshPtr mesh = Mesh::create(world, {2, 2}, {"dp", "tp"});
    const MeshPtr slice = mesh->submesh({"dp"});
    const MeshPtr of_group = Mesh::from_group(world, mesh->group("dp"), "dp");
    EXPECT_EQ(slice->ranks(), of_group->ranks());
    EXPECT_EQ(slice->coordinate(0), of_group->coordinate(0));
    EXPECT_EQ(slice->group(0), of_group->group(0));
    const auto model = seed(std::make_shared<Mlp>(8));
    const auto other = seed(std::make_shared<Mlp>(8));
    const UnitPtr root = fsdp::fully_shard(model, slice, policy_unset());
    const UnitPtr other_root = fsdp::fully_shard(other, of_group, policy_unset());
    const at::Tensor x = random_input({4, 8}, 0, static_cast<int>(mesh->coordinate("dp")));
    const at::Tensor loss = (*model)(x).sum();
    const at::Tensor other_loss = (*other)(x).sum();
    EXPECT_TRUE(loss.equal(other_loss));
    loss.backward();
    other_loss.backward();
    for (size_t i = 0; i < root->parameters().size(); ++i) {
      const at::Tensor& mine = root->parameters()[i]->sharded();
      const at::Tensor& others = other_root->parameters()[i]->sharded();
      EXPECT_EQ(root->parameters()[i]->layout().world, 2);
      EXPECT_TRUE(mine.equal(others) && mine.grad().equal(others.grad()));
    }
  });
}

TEST(ChecklistInit, INIT20_ReplicasAreMadeEqualByBroadcast) {
  run_ranks(4, [](const WorldPtr& world) {
    const MeshPtr mesh = hybrid_mesh(world, 2);
    const auto model = seed(std::make_shared<TinyTransformer>(TransformerOptions{2}));
    const at::Tensor buffer = model->register_buffer("extra", at::ones({16}));
    const UnitPtr root = shard_blocks_and_root(model, mesh, policy_unset());
    std::vector<at::Tensor> locals{buffer};
    for (const fsdp::ShardedParam* param : root->parameters()) {
      locals.push_back(param->local_values());
    }
    for (const at::Tensor& local : locals) {
      const at::Tensor original = local.clone();
      if (mesh->coordinate(0) == 1) {
        local.fill_(1337.0);
      }
      mesh->comm(0, Lane::kGather).broadcast(local, /*root=*/0).wait();
      EXPECT_TRUE(local.equal(original));
    }
    (*model)(random_tokens({2, 16}, 8, 0, world->rank())).sum().backward();
  });
}

TEST(ChecklistInit, INIT21_TheReductionHookChangesWhatLandsInTheGradients) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = seed(std::make_shared<Mlp>(8));
    const auto plain = seed(std::make_shared<Mlp>(8));
    const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset());
    const UnitPtr plain_root = fsdp::fully_shard(plain, flat_mesh(world), policy_unset());
    int calls = 0;
    root->set_all_reduce_hook([&](const at::Tensor& flat) {
      ++calls;
      EXPECT_EQ(flat.dim(), 1);
      flat.mul_(3.0);
    });
    const at::Tensor x = random_input({4, 8}, 0, world->rank());
    for (int step = 1; step <= 2; ++step) {
      root->zero_grad();
      plain_root->zero_grad();
      (*model)(x).sum().backward();
      (*plain)(x).sum().backward();
      EXPECT_EQ(calls, step);
    }
    for (size_t i = 0; i < root->parameters().size(); ++i) {
      expect_close(root->parameters()[i]->sharded().grad(),
                   plain_root->parameters()[i]->sharded().grad() * 3.0, kT32,
                   root->parameters()[i]->name());
    }
  });
}

TEST(ChecklistInit, INIT22_TheLargestDimOfEachParameterIsSharded) {
  run_ranks(8, [](const WorldPtr& world) {
    const TransformerOptions options{3};
    const auto model = seed(std::make_shared<TinyTransformer>(options));
    const auto original = seed(std::make_shared<TinyTransformer>(options));
    Policy policy = policy_unset();
    policy.shard_dim = largest_dim;
    const UnitPtr root = shard_blocks_and_root(model, flat_mesh(world), policy);
    int on_dim_1 = 0;
    for (const fsdp::ShardedParam* param : root->parameters()) {
      const at::Tensor full = find_parameter(*original, param->name());
      EXPECT_EQ(param->layout().dim, largest_dim("", full)) << param->name();
      on_dim_1 += param->layout().dim == 1 ? 1 : 0;
      EXPECT_TRUE(full_parameter(*root, *param).equal(full)) << param->name();
    }
    EXPECT_GT(on_dim_1, 0);
  });
}

TEST(ChecklistInit, INIT23_UnevenColumnsAreRefused) {
  run_ranks(8, [](const WorldPtr& world) {
    Policy policy = policy_unset();
    policy.shard_dim = largest_dim;
    const auto model = seed(make_linears({16, 17, 8}));
    fsdp::fully_shard(model->items[0], flat_mesh(world), policy);  // 17 rows: fine
    expect_error(Code::kUnsupported, {"dim 1", "17"},
                 [&] { fsdp::fully_shard(model, flat_mesh(world), policy); });
  });
}

TEST(ChecklistInit, INIT24_ADimThatABiasDoesNotHaveIsRefused) {
  run_ranks(2, [](const WorldPtr& world) {
    Policy policy = policy_unset();
    policy.shard_dim = [](const std::string& /*name*/, const at::Tensor& /*parameter*/) {
      return 1;
    };
    const auto refused = seed(make_linears({16, 16, 8}));
    expect_error(Code::kInvalidArgument, {"dim 1", "1-D"},
                 [&] { fsdp::fully_shard(refused, flat_mesh(world), policy); });
    expect_plain(*refused);
    policy.shard_dim = [](const std::string& /*name*/, const at::Tensor& parameter) {
      return parameter.dim() == 2 ? 1 : 0;
    };
    const auto model = seed(make_linears({16, 16, 8}));
    const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy);
    EXPECT_EQ(find_param(*root, "0.weight").layout().dim, 1);
    EXPECT_EQ(find_param(*root, "0.bias").layout().dim, 0);
  });
}

// A frozen 8-bit parameter beside a trainable one.
class WithEightBits : public nn::Module {
 public:
  WithEightBits() : nn::Module("WithEightBits") {
    packed = register_parameter("packed", at::ones({256, 256}).to(at::kFloat8_e4m3fn),
                                /*requires_grad=*/false);
    weight = register_parameter("weight", at::ones({256, 256}));
  }
  at::Tensor packed;
  at::Tensor weight;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    EXPECT_EQ(packed.sizes(), at::IntArrayRef({256, 256}));
    EXPECT_EQ(packed.scalar_type(), at::kFloat8_e4m3fn);
    EXPECT_EQ(weight.scalar_type(), at::kFloat);
    const at::Tensor x = at::matmul(inputs[0].toTensor(), packed.to(at::kFloat));
    return at::matmul(x, weight);
  }
};

TEST(ChecklistInit, INIT25_AFrozenEightBitParameterIsGatheredInItsOwnDtype) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = std::make_shared<WithEightBits>();
    const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset());
    const at::Tensor output = (*model)(at::ones({1, 256}));
    EXPECT_TRUE(output.equal(at::full({1, 256}, 256.0 * 256.0)));
    output.sum().backward();
    EXPECT_FALSE(find_param(*root, "packed").sharded().grad().defined());
    EXPECT_TRUE(find_param(*root, "weight").sharded().grad().defined());
  });
}

}  // namespace
}  // namespace fsdp2::checklist
