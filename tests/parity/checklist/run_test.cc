// Checklist, lifecycle: unshard and reshard states, roots, forward entry points: RUN.
#include <gtest/gtest.h>

#include "core/nn/layers/layers.h"
#include "core/nn/module_list.h"
#include "tests/parity/checklist/expected_error.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

using fsdp::GroupState;

void expect_states(Unit& root, GroupState state) {
  for (const auto& member : root.scheduler().members()) {
    EXPECT_EQ(member.group->state(), state) << member.name;
  }
}

// W W, without any input.
class Square : public nn::Module {
 public:
  Square() : nn::Module("Square") { weight = register_parameter("weight", at::zeros({4, 4})); }
  at::Tensor weight;

 protected:
  c10::IValue forward(nn::Values /*inputs*/) override { return at::matmul(weight, weight); }
};

TEST(ChecklistRun, RUN1_AForwardWithoutInputs) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = seed(std::make_shared<Square>());
    const auto reference = seed(std::make_shared<Square>());
    const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset());
    const at::Tensor output = (*model)(nn::Values{}).toTensor();
    EXPECT_EQ(output.sizes(), at::IntArrayRef({4, 4}));
    output.sum().backward();
    (*reference)(nn::Values{}).toTensor().sum().backward();
    expect_parity(*root, *reference, kT32, "after backward");
    expect_states(*root, GroupState::kSharded);
  });
}

TEST(ChecklistRun, RUN2_StatesOfTheRootAroundAForward) {
  struct Case {
    Policy policy;
    GroupState after_forward;
  };
  for (const Case& c : {Case{policy_true(), GroupState::kSharded},
                        {policy_of_smaller(2), GroupState::kPostForward},
                        {policy_false(), GroupState::kUnsharded},
                        {policy_unset(), GroupState::kUnsharded}}) {
    run_ranks(4, [&](const WorldPtr& world) {
      const auto model = seed(std::make_shared<Mlp>(3));
      const auto original = seed(std::make_shared<Mlp>(3));
      const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), c.policy);
      const auto expect_original = [&] {
        root->unshard();
        for (const fsdp::ShardedParam* param : root->parameters()) {
          const at::Tensor full = find_parameter(*original, param->name());
          EXPECT_TRUE(param->unsharded().equal(full)) << param->name();
          EXPECT_TRUE(full_parameter(*root, *param).equal(full)) << param->name();
        }
      };
      expect_states(*root, GroupState::kSharded);
      expect_original();
      root->reshard();
      (*model)(random_input({2, 3}, 0, world->rank()));
      expect_states(*root, c.after_forward);
      expect_original();
      root->reshard();
      expect_states(*root, GroupState::kSharded);
    });
  }
}

TEST(ChecklistRun, RUN3_EverythingIsShardedAfterBackward) {
  for (const Policy& policy : policies_true_false_two()) {
    for (const bool one_group : {true, false}) {
      run_ranks(4, [&](const WorldPtr& world) {
        const auto model = seed(std::make_shared<Mlp>(8));
        const std::vector<ModulePtr> modules =
            one_group ? std::vector<ModulePtr>{model}
                      : std::vector<ModulePtr>{model->in_proj, model->out_proj, model};
        const UnitPtr root = shard_each(modules, flat_mesh(world), policy);
        (*model)(random_input({4, 8}, 0, world->rank())).sum().backward();
        expect_states(*root, GroupState::kSharded);
      });
    }
  }
}

// outer(inner(x) + inner(x)).
class UsedTwice : public nn::Module {
 public:
  UsedTwice() : nn::Module("UsedTwice") {
    inner = register_module("inner", std::make_shared<Linear>(4, 4));
    outer = register_module("outer", std::make_shared<Linear>(4, 5));
  }
  std::shared_ptr<Linear> inner;
  std::shared_ptr<Linear> outer;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor x = inputs[0].toTensor();
    return (*outer)((*inner)(x) + (*inner)(x));
  }
};

TEST(ChecklistRun, RUN4_AModuleUsedTwiceReducesOnce) {
  for (const Policy& policy : policies_true_false_two()) {
    run_ranks(4, [&](const WorldPtr& world) {
      const auto model = seed(std::make_shared<UsedTwice>());
      const auto reference = seed(std::make_shared<UsedTwice>());
      const UnitPtr root = shard_each({model->inner, model}, flat_mesh(world), policy);
      expect_same_training({*root, *model, *reference, world->rank(), world->size()}, {},
                           [](nn::Module& module, int step, int rank) {
                             return module(random_input({32, 4}, step, rank)).sum();
                           });
      EXPECT_EQ(root->scheduler().stats().reduce_scatters, 10 * 2);
    });
  }
}

TEST(ChecklistRun, RUN5_TwoForwardsBeforeOneBackward) {
  const TransformerOptions options{3, /*tokens=*/1024, /*positions=*/64};
  for (const Policy& policy : policies_true_false()) {
    run_ranks(2, [&](const WorldPtr& world) {
      const auto model = seed(std::make_shared<TinyTransformer>(options));
      const auto reference = seed(std::make_shared<TinyTransformer>(options));
      std::vector<ModulePtr> modules;
      for (const auto& block : model->blocks) {
        modules.insert(modules.end(), {block->attention, block->feed_forward, block});
      }
      modules.push_back(model);
      const UnitPtr root = shard_each(modules, flat_mesh(world), policy);
      const Loss loss = [&](nn::Module& module, int rank) {
        const at::Tensor first = module(random_tokens({2, 32}, options.tokens, 0, rank)).sum();
        const at::Tensor second = module(random_tokens({2, 32}, options.tokens, 1, rank)).sum();
        return (first - second).square();
      };
      loss(*model, world->rank()).backward();
      averaged_backward(*reference, world->size(), loss);
      for (const fsdp::ShardedParam* param : root->parameters()) {
        const at::Tensor expected = find_parameter(*reference, param->name()).grad();
        // Gradients of up to 1e3 whose sums cancel: their largest element sets the scale.
        const double scale = expected.abs().max().item<double>();
        expect_close(param->sharded().grad(), slice_of(*param, expected), {1e-4 * scale, 1e-4},
                     param->name());
      }
    });
  }
}

TEST(ChecklistRun, RUN6_AnUnshardOfARootWithoutParametersCommunicatesNothing) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = seed(std::make_shared<Sequence>(
        std::vector<ModulePtr>{std::make_shared<Linear>(4, 4), std::make_shared<Linear>(4, 4)}));
    const UnitPtr root = shard_items_and_root(model, flat_mesh(world), policy_unset());
    auto handle = root->unshard(/*async_op=*/true);
    handle.wait();
    EXPECT_EQ(root->scheduler().stats().all_gathers, 0);
    EXPECT_EQ(root->comm_counters().all_gathers, 0);
    expect_states(*root, GroupState::kSharded);
  });
}

TEST(ChecklistRun, RUN7_OneRankCommunicatesNothing) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{16, 15, 8}, {7, 15, 3}, {16, 17, 8}}) {
    run_ranks(1, [&](const WorldPtr& world) {
      const auto model = seed(make_linears(sizes));
      const auto reference = seed(make_linears(sizes));
      const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset());
      expect_same_training({*root, *model, *reference, 0, 1}, {},
                           [&](nn::Module& module, int /*step*/, int rank) {
                             return module(random_input({4, sizes[0]}, 0, rank)).sum();
                           });
      const CommCounters counters = root->comm_counters();
      EXPECT_EQ(counters.all_gathers + counters.reduce_scatters + counters.all_reduces, 0);
    });
  }
}

TEST(ChecklistRun, RUN8_EveryShardedModuleHasAUnitOfItsOwn) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = seed(make_stack3(8));
    shard_items_and_root(model, flat_mesh(world), policy_unset());
    std::vector<UnitPtr> units{fsdp::find_unit(*model)};
    for (const ModulePtr& item : model->items) {
      units.push_back(fsdp::find_unit(*item));
    }
    for (size_t i = 0; i < units.size(); ++i) {
      EXPECT_NE(units[i], nullptr);
      EXPECT_EQ(std::count(units.begin(), units.end(), units[i]), 1);
    }
    const auto& first = dynamic_cast<Mlp&>(*model->items[0]);
    EXPECT_EQ(fsdp::find_unit(*first.in_proj), nullptr);
  });
}

TEST(ChecklistRun, RUN9_ShardingTwiceIsRefusedAndChangesNothing) {
  run_ranks(2, [](const WorldPtr& world) {
    const MeshPtr mesh = flat_mesh(world);
    const auto model = seed(std::make_shared<Mlp>(8));
    const auto fresh = seed(std::make_shared<Mlp>(8));
    const UnitPtr unit = fsdp::fully_shard(model, mesh, policy_unset());
    expect_error(Code::kWrongState, {"already sharded"},
                 [&] { fsdp::fully_shard(model, mesh, policy_unset()); });
    expect_error(Code::kWrongState, {"already sharded"}, [&] {
      fsdp::fully_shard(std::vector<ModulePtr>{fresh, model}, mesh, policy_unset());
    });
    EXPECT_EQ(fsdp::find_unit(*fresh), nullptr);
    EXPECT_FALSE(nn::has_no_memory(fresh->in_proj->weight));
    EXPECT_EQ(fsdp::find_unit(*model), unit);
    (*model)(at::ones({2, 8})).sum().backward();
    (*fresh)(at::ones({2, 8})).sum().backward();
  });
}

TEST(ChecklistRun, RUN10_AListWithoutAForwardIsRefused) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto list = std::make_shared<nn::ModuleList>();
    const auto child = seed(std::make_shared<Linear>(4, 4));
    list->append(child);
    expect_error(Code::kInvalidArgument, {"ModuleList"},
                 [&] { fsdp::fully_shard(list, flat_mesh(world), policy_unset()); });
    EXPECT_FALSE(fsdp::ShardedParam::manages(child->weight));
    EXPECT_FALSE(nn::has_no_memory(child->weight));
  });
}

TEST(ChecklistRun, RUN11_CloningAShardedModuleFails) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = seed(std::make_shared<Mlp>(8));
    const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset());
    try {
      model->clone();
      ADD_FAILURE() << "no error";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find("clone() has not been implemented"),
                std::string::npos)
          << error.what();
    }
    const auto reference = seed(std::make_shared<Mlp>(8));
    expect_same_training({*root, *model, *reference, world->rank(), world->size()}, {},
                         [](nn::Module& module, int step, int rank) {
                           return module(random_input({2, 8}, step, rank)).sum();
                         });
  });
}

TEST(ChecklistRun, RUN12_NothingOutlivesTheModel) {
  run_ranks(2, [](const WorldPtr& world) {
    auto model = seed(std::make_shared<TinyTransformer>(TransformerOptions{2}));
    UnitPtr root = shard_blocks_and_root(model, flat_mesh(world), policy_unset());
    (*model)(random_tokens({2, 16}, 8, 0, world->rank())).sum().backward();
    EXPECT_EQ(root->scheduler().stats().unsharded_bytes, 0);
    const std::weak_ptr<nn::Module> weak_model = model;
    const std::weak_ptr<Unit> weak_root = root;
    const std::weak_ptr<Unit> weak_block = fsdp::find_unit(*model->blocks[0]);
    const c10::weak_intrusive_ptr<c10::TensorImpl> weak_shard(
        root->parameters()[0]->sharded().getIntrusivePtr());
    const c10::weak_intrusive_ptr<c10::TensorImpl> weak_parameter(
        root->parameters()[0]->unsharded().getIntrusivePtr());
    root.reset();
    model.reset();
    EXPECT_TRUE(weak_model.expired() && weak_root.expired() && weak_block.expired());
    EXPECT_TRUE(weak_shard.expired() && weak_parameter.expired());
  });
}

TEST(ChecklistRun, RUN13_BlocksShardedAsTheyAreBuilt) {
  run_ranks(2, [](const WorldPtr& world) {
    const MeshPtr mesh = flat_mesh(world);
    std::vector<ModulePtr> blocks;
    for (int i = 0; i < 8; ++i) {
      blocks.push_back(seed(std::make_shared<Sequence>(std::vector<ModulePtr>{
          std::make_shared<LayerNorm>(16, /*has_bias=*/false), std::make_shared<Linear>(16, 16)})));
      fsdp::fully_shard(blocks.back(), mesh, policy_unset());
    }
    const auto model = std::make_shared<Sequence>(blocks);
    blocks.clear();
    const UnitPtr root = fsdp::fully_shard(model, mesh, policy_unset());
    (*model)(random_input({2, 4, 16}, 0, world->rank())).sum().backward();
    ASSERT_EQ(root->parameters().size(), 24U);
    for (const fsdp::ShardedParam* param : root->parameters()) {
      EXPECT_TRUE(param->sharded().grad().defined()) << param->name();
    }
  });
}

}  // namespace
}  // namespace fsdp2::checklist
