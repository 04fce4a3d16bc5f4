// Checklist, a module's state: SDM. The state of a sharded module is its tree's parameters by name:
// shards that an optimizer updates and a checkpoint reads and writes in place.
#include <gtest/gtest.h>

#include <map>

#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

using State = std::map<std::string, at::Tensor>;

// MLP(d), [MLP(d), Linear d -> d], MLP(d); each top child a group, and the root.
std::shared_ptr<Sequence> nested_sequence(int64_t width) {
  return seed(std::make_shared<Sequence>(std::vector<ModulePtr>{
      std::make_shared<Mlp>(width),
      std::make_shared<Sequence>(std::vector<ModulePtr>{std::make_shared<Mlp>(width),
                                                        std::make_shared<Linear>(width, width)}),
      std::make_shared<Mlp>(width)}));
}

State state_of(Unit& root) {
  State state;
  root.scheduler().lend_shards();
  for (const fsdp::ShardedParam* param : root.parameters()) {
    state[param->name()] = param->local_values();
  }
  return state;
}

struct Sharded {
  std::shared_ptr<Sequence> model;
  UnitPtr root;
};

void expect_state_is_shared_and_written_in_place(const Sharded& s, const nn::Module& original,
                                                 int rank) {
  const State state = state_of(*s.root);
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(original)) {
    ASSERT_EQ(state.count(parameter.names[0]), 1U) << parameter.names[0];
  }
  EXPECT_EQ(state.size(), original.parameters().size());
  for (const fsdp::ShardedParam* param : s.root->parameters()) {
    const at::Tensor& value = state.at(param->name());
    const void* const memory = param->sharded().data_ptr();
    EXPECT_TRUE(value.equal(slice_of(*param, find_parameter(original, param->name()))));
    EXPECT_TRUE(value.numel() == 0 || value.data_ptr() == memory) << param->name();
    value.copy_(at::full_like(value, 42.0 + rank));
    EXPECT_EQ(param->sharded().data_ptr(), memory) << param->name();
    EXPECT_TRUE(param->sharded().eq(42.0 + rank).all().item<bool>()) << param->name();
  }
}

void expect_state_survives_a_forward(const Sharded& s, int64_t width, int rank) {
  State before;
  for (const auto& [name, value] : state_of(*s.root)) {
    before[name] = value.clone();
  }
  const at::Tensor x = random_input({2, width}, 0, rank);
  (*s.model)(x);
  for (const auto& member : s.root->scheduler().members()) {
    EXPECT_EQ(member.group->state(), fsdp::GroupState::kUnsharded) << member.name;
  }
  const State after = state_of(*s.root);
  for (const auto& [name, value] : before) {
    EXPECT_TRUE(after.at(name).equal(value)) << name;
  }
  // What is written to the state is what the next forward uses, not what the last one has gathered.
  for (const auto& [name, value] : after) {
    value.mul_(2);
  }
  const auto doubled = nested_sequence(width);
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : doubled->parameters()) {
    parameter.mul_(2);
  }
  expect_close((*s.model)(x), (*doubled)(x), kT32, "forward with what the state was set to");
}

Sharded shard_nested(const MeshPtr& mesh, int64_t width, const Policy& policy) {
  Sharded sharded{nested_sequence(width), nullptr};
  sharded.root = shard_items_and_root(sharded.model, mesh, policy);
  return sharded;
}

TEST(ChecklistSdm, SDM1_StateSharesMemoryWithTheParameters) {
  for (const int size : {2, 8}) {
    run_ranks(size, [](const WorldPtr& world) {
      for (int64_t width = 2; width <= 5; ++width) {
        expect_state_is_shared_and_written_in_place(
            shard_nested(flat_mesh(world), width, policy_unset()), *nested_sequence(width),
            world->rank());
      }
    });
  }
}

TEST(ChecklistSdm, SDM2_StateAfterAForwardIsThatBefore) {
  for (const int size : {2, 8}) {
    run_ranks(size, [](const WorldPtr& world) {
      for (int64_t width = 2; width <= 5; ++width) {
        expect_state_survives_a_forward(shard_nested(flat_mesh(world), width, policy_false()),
                                        width, world->rank());
      }
    });
  }
}

TEST(ChecklistSdm, SDM3_HybridStateFollowsTheSameRules) {
  for (const int size : {4, 8}) {
    run_ranks(size, [](const WorldPtr& world) {
      const MeshPtr mesh = hybrid_mesh(world, 2);
      for (int64_t width = 2; width <= 5; ++width) {
        const Sharded s = shard_nested(mesh, width, policy_false());
        for (const fsdp::ShardedParam* param : s.root->parameters()) {
          EXPECT_EQ(param->layout().world, 2);
          EXPECT_EQ(param->layout().rank, mesh->coordinate(1));
          EXPECT_EQ(param->layout().dim, 0);
        }
        expect_state_survives_a_forward(s, width, world->rank());
        expect_state_is_shared_and_written_in_place(shard_nested(mesh, width, policy_unset()),
                                                    *nested_sequence(width), world->rank());
      }
    });
  }
}

TEST(ChecklistSdm, SDM4_StateTakenOnceShowsTheNewestValues) {
  run_ranks(4, [](const WorldPtr& world) {
    for (int64_t width = 2; width <= 5; ++width) {
      const auto model = seed(std::make_shared<Linear>(width, width, /*has_bias=*/false));
      const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset());
      const at::Tensor state = state_of(*root).at("weight");
      const at::Tensor original = state.clone();
      PlainOptimizer optimizer(trainable_shards(*root), Rule::kAdamW, 1e-2);
      for (int step = 0; step < 5; ++step) {
        (*model)(random_input({3, width}, step, world->rank())).sum().backward();
        optimizer.step();
        root->zero_grad();
        const at::Tensor& shard = root->parameters()[0]->sharded();
        EXPECT_TRUE(state.numel() == 0 || state.data_ptr() == shard.data_ptr());
        EXPECT_TRUE(state.equal(shard));
      }
      EXPECT_TRUE(state.numel() == 0 || !state.equal(original));
    }
  });
}

TEST(ChecklistSdm, SDM5_GatheredStateIsTheOriginal) {
  run_ranks(2, [](const WorldPtr& world) {
    const TransformerOptions options{2};
    const auto model = seed(std::make_shared<TinyTransformer>(options));
    const UnitPtr root = shard_blocks_and_root(model, flat_mesh(world), policy_unset());
    std::vector<std::pair<std::string, at::Tensor>> full;
    for (const fsdp::ShardedParam* param : root->parameters()) {
      const at::Tensor value = full_parameter(*root, *param);
      if (world->rank() == 0) {
        full.emplace_back(param->name(), value);
      }
    }
    if (world->rank() > 0) {
      EXPECT_TRUE(full.empty());
      return;
    }
    const auto original =
        nn::named_unique_parameters(*seed(std::make_shared<TinyTransformer>(options)));
    ASSERT_EQ(full.size(), original.size());
    for (size_t i = 0; i < full.size(); ++i) {
      EXPECT_EQ(full[i].first, original[i].names[0]);
      EXPECT_TRUE(full[i].second.equal(original[i].tensor)) << full[i].first;
    }
  });
}

}  // namespace
}  // namespace fsdp2::checklist
