// Checklist, which parameters a group has, and their names: INIT-1, INIT-4 to 11, INIT-14 to 16.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/parity/checklist/expected_error.h"
#include "tests/parity/checklist/mlp_rows.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

using Names = std::vector<std::string>;

std::shared_ptr<Mlp> buffered_mlp() {
  return std::make_shared<Mlp>(MlpOptions{8, 4, /*has_bias=*/true, /*has_buffer=*/true});
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

}  // namespace
}  // namespace fsdp2::checklist
