// Checklist, initialisation, sharding layout, grouping: INIT.
#include <gtest/gtest.h>

#include "core/nn/seeded_init.h"
#include "tests/parity/checklist/expected_error.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

using Names = std::vector<std::string>;

std::shared_ptr<Mlp> buffered_mlp() {
  return std::make_shared<Mlp>(MlpOptions{8, 4, /*has_bias=*/true, /*has_buffer=*/true});
}

template <class Make>
std::shared_ptr<Sequence> row_of(size_t count, const Make& make) {
  std::vector<ModulePtr> items;
  while (items.size() < count) {
    items.push_back(make());
  }
  return seed(std::make_shared<Sequence>(items));
}

std::shared_ptr<Sequence> mlps(size_t count) {
  return row_of(count, [] { return std::make_shared<Mlp>(8); });
}

// Two MLP(d) that have their first Linear in common.
std::shared_ptr<Sequence> mlps_with_shared_linear(int64_t width, int64_t multiple) {
  const auto first = std::make_shared<Mlp>(width, multiple);
  const auto second = std::make_shared<Mlp>(width, multiple);
  second->in_proj = second->replace_module("in_proj", first->in_proj);
  return seed(std::make_shared<Sequence>(std::vector<ModulePtr>{first, second}));
}

// The parameters of the modules in module order, each once.
std::vector<at::Tensor> parameters_of(const std::vector<ModulePtr>& modules) {
  std::vector<at::Tensor> parameters;
  for (const ModulePtr& module : modules) {
    for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*module)) {
      parameters.push_back(parameter.tensor);
    }
  }
  return parameters;
}

void expect_holds_exactly(const Unit& unit, const std::vector<at::Tensor>& parameters) {
  ASSERT_NE(unit.group(), nullptr);
  const std::vector<fsdp::ShardedParam*>& params = unit.group()->params();
  ASSERT_EQ(params.size(), parameters.size());
  for (size_t i = 0; i < params.size(); ++i) {
    EXPECT_TRUE(params[i]->unsharded().is_same(parameters[i])) << i;
  }
}

void expect_plain(const nn::Module& module) {
  for (const auto& parameter : module.named_parameters()) {
    EXPECT_FALSE(fsdp::ShardedParam::manages(parameter.value())) << parameter.key();
    EXPECT_FALSE(nn::has_no_memory(parameter.value())) << parameter.key();
  }
}

TEST(ChecklistInit, INIT1_IgnoredParametersStayAsTheyAre) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = seed(std::make_shared<Mlp>(8));
    Policy policy = policy_unset();
    policy.ignored = {model->out_proj->weight, model->out_proj->bias};
    const void* const weight = model->out_proj->weight.data_ptr();
    const void* const bias = model->out_proj->bias.data_ptr();
    const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy);
    EXPECT_EQ(model->out_proj->weight.sizes(), at::IntArrayRef({8, 32}));
    EXPECT_EQ(model->out_proj->bias.sizes(), at::IntArrayRef({8}));
    EXPECT_EQ(model->out_proj->weight.data_ptr(), weight);
    EXPECT_EQ(model->out_proj->bias.data_ptr(), bias);
    expect_plain(*model->out_proj);
    expect_holds_exactly(*root, parameters_of({model->in_proj}));
    // An input of each rank's own: the sharded gradients are averaged, the ignored ones this
    // rank's.
    const Loss loss = [](nn::Module& module, int rank) {
      return module(random_input({2, 8}, 0, rank)).sum();
    };
    loss(*model, world->rank()).backward();
    const auto local = seed(std::make_shared<Mlp>(8));
    loss(*local, world->rank()).backward();
    expect_close(model->out_proj->weight.grad(), local->out_proj->weight.grad(), kT32, "ignored");
    expect_close(model->out_proj->bias.grad(), local->out_proj->bias.grad(), kT32, "ignored");
    const auto averaged = seed(std::make_shared<Mlp>(8));
    averaged_backward(*averaged, 2, loss);
    for (const fsdp::ShardedParam* param : root->parameters()) {
      expect_close(full_gradient(*root, *param), find_parameter(*averaged, param->name()).grad(),
                   kT32, param->name());
    }
  });
}

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

TEST(ChecklistInit, INIT4_ALoneModuleIsOneGroup) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = seed(std::make_shared<Mlp>(8));
    const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset());
    expect_holds_exactly(*root, parameters_of({model}));
    EXPECT_EQ(root->scheduler().members().size(), 1U);
    EXPECT_EQ(names_of(*root->group()),
              (Names{"in_proj.weight", "in_proj.bias", "out_proj.weight", "out_proj.bias"}));
  });
}

TEST(ChecklistInit, INIT5_TheParentHoldsWhatItsChildDoesNot) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = mlps(2);
    const UnitPtr root = shard_each({model->items[0], model}, flat_mesh(world), policy_unset());
    expect_holds_exactly(*root, parameters_of({model->items[1]}));
    expect_holds_exactly(unit_of(*model->items[0]), parameters_of({model->items[0]}));
  });
}

TEST(ChecklistInit, INIT6_AModuleAtTwoPlacesIsOneGroup) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto twice = [] {
      const auto mlp = std::make_shared<Mlp>(8);
      return seed(std::make_shared<Sequence>(std::vector<ModulePtr>{mlp, mlp}));
    };
    const auto model = twice();
    const auto reference = twice();
    const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset());
    const Loss loss = [](nn::Module& module, int rank) {
      return module(random_input({4, 8}, 0, rank)).sum();
    };
    loss(*model, world->rank()).backward();
    averaged_backward(*reference, world->size(), loss);
    EXPECT_EQ(root->parameters().size(), 4U);
    EXPECT_EQ(names_of(*root->group()), (Names{"0.in_proj.weight", "0.in_proj.bias",
                                               "0.out_proj.weight", "0.out_proj.bias"}));
    EXPECT_EQ(root->scheduler().stats().all_gathers, 1);
    EXPECT_EQ(root->scheduler().stats().reduce_scatters, 1);
    expect_parity(*root, *reference, kT32, "after backward");
  });
}

TEST(ChecklistInit, INIT7_AListOfModulesIsOneGroup) {
  run_ranks(2, [](const WorldPtr& world) {
    const MeshPtr mesh = flat_mesh(world);
    for (const std::vector<size_t>& listed : {std::vector<size_t>{0, 1, 2}, {1, 3}}) {
      const auto model = mlps(5);
      std::vector<ModulePtr> modules;
      std::vector<ModulePtr> others;
      for (size_t i = 0; i < 5; ++i) {
        const bool in_list = std::count(listed.begin(), listed.end(), i) > 0;
        (in_list ? modules : others).push_back(model->items[i]);
      }
      const UnitPtr unit = fsdp::fully_shard(modules, mesh, policy_unset());
      expect_holds_exactly(*unit, parameters_of(modules));
      for (const ModulePtr& other : others) {
        EXPECT_EQ(fsdp::find_unit(*other), nullptr);
        expect_plain(*other);
      }
    }
  });
}

TEST(ChecklistInit, INIT8_TheParentManagesTheOtherChildAndItsBufferStaysWhole) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = row_of(2, buffered_mlp);
    const UnitPtr root = shard_each({model->items[0], model}, flat_mesh(world), policy_unset());
    expect_holds_exactly(*root, parameters_of({model->items[1]}));
    for (const auto& buffer : model->named_buffers()) {
      EXPECT_TRUE(buffer.value().equal(at::full({8}, 0.5))) << buffer.key();
    }
  });
}

TEST(ChecklistInit, INIT9_AListWithBuffersKeepsThemWhole) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = row_of(5, buffered_mlp);
    const std::vector<ModulePtr> listed(model->items.begin(), model->items.begin() + 3);
    const UnitPtr unit = fsdp::fully_shard(listed, flat_mesh(world), policy_unset());
    expect_holds_exactly(*unit, parameters_of(listed));
    for (const auto& buffer : model->named_buffers()) {
      EXPECT_TRUE(buffer.value().equal(at::full({8}, 0.5))) << buffer.key();
    }
  });
}

TEST(ChecklistInit, INIT10_ASharedLinearHasTwoNames) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = mlps_with_shared_linear(8, 4);
    const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset());
    ASSERT_EQ(root->parameters().size(), 6U);
    EXPECT_EQ(root->group()->params().size(), 6U);
    for (const std::string name : {"weight", "bias"}) {
      EXPECT_EQ(find_param(*root, "0.in_proj." + name).names(),
                (Names{"0.in_proj." + name, "1.in_proj." + name}));
    }
  });
}

TEST(ChecklistInit, INIT11_AListHasItsParametersInModuleOrderWithoutAliases) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = mlps(2);
    const MeshPtr mesh = flat_mesh(world);
    const UnitPtr unit = fsdp::fully_shard(model->items, mesh, policy_unset());
    expect_holds_exactly(*unit, parameters_of(model->items));
    const UnitPtr root = fsdp::fully_shard(model, mesh, policy_unset());
    ASSERT_EQ(root->parameters().size(), 8U);
    for (const fsdp::ShardedParam* param : root->parameters()) {
      EXPECT_EQ(param->names().size(), 1U) << param->name();
    }
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

TEST(ChecklistInit, INIT14_TheOutermostModuleIsTheRoot) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = mlps(2);
    const auto& first = dynamic_cast<Mlp&>(*model->items[0]);
    const UnitPtr root =
        shard_each({first.in_proj, first.out_proj, model}, flat_mesh(world), policy_unset());
    (*model)(at::ones({2, 8}));
    Names groups;
    for (const auto& member : root->scheduler().members()) {
      groups.push_back(member.name);
    }
    EXPECT_EQ(groups, (Names{"", "0.in_proj", "0.out_proj"}));
    EXPECT_TRUE(root->name().empty());
    EXPECT_EQ(unit_of(*first.in_proj).name(), "0.in_proj");
    EXPECT_EQ(unit_of(*first.out_proj).name(), "0.out_proj");
  });
}

TEST(ChecklistInit, INIT15_ParametersHaveTheirFullDottedNames) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = mlps(2);
    const auto& first = dynamic_cast<Mlp&>(*model->items[0]);
    const UnitPtr root =
        shard_each({first.in_proj, first.out_proj, model}, flat_mesh(world), policy_unset());
    root->tree();
    EXPECT_EQ(names_of(*root->group()), (Names{"1.in_proj.weight", "1.in_proj.bias",
                                               "1.out_proj.weight", "1.out_proj.bias"}));
    EXPECT_EQ(names_of(*unit_of(*first.in_proj).group()),
              (Names{"0.in_proj.weight", "0.in_proj.bias"}));
    EXPECT_EQ(names_of(*unit_of(*first.out_proj).group()),
              (Names{"0.out_proj.weight", "0.out_proj.bias"}));
  });
}

TEST(ChecklistInit, INIT16_AListCannotBeTheRoot) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = mlps(2);
    fsdp::fully_shard(model->items, flat_mesh(world), policy_unset());
    for (const ModulePtr& item : model->items) {
      expect_error(Code::kWrongState, {"single", "root"}, [&] { (*item)(at::ones({2, 8})); });
    }
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
      EXPECT_EQ(param->layout().dim, largest_dim("", full.sizes())) << param->name();
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
    policy.shard_dim = [](const std::string& /*name*/, at::IntArrayRef /*shape*/) { return 1; };
    const auto refused = seed(make_linears({16, 16, 8}));
    expect_error(Code::kInvalidArgument, {"dim 1", "1-D"},
                 [&] { fsdp::fully_shard(refused, flat_mesh(world), policy); });
    expect_plain(*refused);
    policy.shard_dim = [](const std::string& /*name*/, at::IntArrayRef shape) {
      return shape.size() == 2 ? 1 : 0;
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
