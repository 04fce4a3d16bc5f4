// Checklist, the optimizer's part of the distributed state dict: DSD-4, DSD-8, DSD-11.
#include <gtest/gtest.h>

#include "tests/parity/checklist/expected_error.h"
#include "tests/parity/checklist/full_state.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

constexpr double kRate = 1e-3;

// Two Linear 2 -> 2.
std::shared_ptr<Sequence> two_linears(bool has_bias, uint64_t number = 42) {
  return seed(
      std::make_shared<Sequence>(std::vector<ModulePtr>{std::make_shared<Linear>(2, 2, has_bias),
                                                        std::make_shared<Linear>(2, 2, has_bias)}),
      number);
}

ShardedRun trained(ModulePtr model, const WorldPtr& world, const at::Tensor& input) {
  const ShardedRun run = make_run(std::move(model), flat_mesh(world), policy_unset(), adamw(kRate));
  run.step(input);
  return run;
}

bool has_object(const StateDict& state, const std::string& name) {
  return std::any_of(state.objects.begin(), state.objects.end(),
                     [&](const ckpt::StateObject& object) { return object.name == name; });
}

TEST(ChecklistDsd, DSD4_FlatAndNestedKeysGiveTheSameState) {
  run_ranks(2, [](const WorldPtr& world) {
    const ShardedRun run = trained(seed(std::make_shared<Composite100>()), world,
                                   random_input({8, 100}, 0, world->rank()));
    run.optimizer->set_lr(3e-4);
    const StateDict nested = full_state(run);
    const StateDict flat = full_state(run, GatherTo::kEveryRank, OptimizerKeys::kByParameter);
    EXPECT_TRUE(has_object(nested, "optim.param_groups.0.lr"));
    EXPECT_TRUE(has_object(flat, "optim.param_groups.unit1.0.weight.lr"));
    EXPECT_TRUE(has_object(flat, "optim.param_groups.factor.betas"));
    EXPECT_FALSE(has_object(flat, "optim.param_groups.0.lr"));
    const auto slot =
        std::find_if(flat.tensors.begin(), flat.tensors.end(), [](const ckpt::StateTensor& tensor) {
          return tensor.path == ckpt::StatePath{"optim", "state.factor.exp_avg"};
        });
    EXPECT_NE(slot, flat.tensors.end());
    for (const StateDict& state : {nested, flat}) {
      const ShardedRun fresh = make_run(seed(std::make_shared<Composite100>(), 7), flat_mesh(world),
                                        policy_unset(), adamw(kRate));
      load(fresh, state);
      EXPECT_EQ(fresh.optimizer->lr(), 3e-4);
      expect_same_state(full_state(fresh), nested);
    }
  });
}

TEST(ChecklistDsd, DSD8_AFrozenWeightKeepsItsState) {
  run_ranks(2, [](const WorldPtr& world) {
    const at::Tensor input = random_input({3, 2}, 0, world->rank());
    const auto freeze_first = [](const ShardedRun& run) {
      ASSERT_EQ(run.root->parameters()[0]->name(), "0.weight");
      run.root->parameters()[0]->sharded().set_requires_grad(false);
    };
    const ShardedRun run = trained(two_linears(true), world, input);
    freeze_first(run);
    const StateDict full = full_state(run);
    const at::Tensor entry = find_tensor(full, "optim.state.0.weight.exp_avg");
    ASSERT_TRUE(entry.defined());
    EXPECT_TRUE(entry.ne(0).any().item<bool>());
    const ShardedRun fresh =
        make_run(two_linears(true, 7), flat_mesh(world), policy_unset(), adamw(kRate));
    freeze_first(fresh);
    load(fresh, full);
    expect_same_state(full_state(fresh), full);
  });
}

TEST(ChecklistDsd, DSD11_MissingStateIsNamedOrSkipped) {
  run_ranks(2, [](const WorldPtr& world) {
    const ShardedRun run =
        trained(two_linears(false), world, random_input({3, 2}, 0, world->rank()));
    const StateDict full = full_state(run, GatherTo::kEveryRank, OptimizerKeys::kByParameter);
    StateDict part = full;
    const std::vector<std::string> removed = {"optim.state.1.weight.step",
                                              "optim.state.1.weight.exp_avg",
                                              "optim.state.1.weight.exp_avg_sq"};
    for (const std::string& name : removed) {
      remove_tensor(&part, name);
    }
    const ShardedRun fresh =
        make_run(two_linears(false, 7), flat_mesh(world), policy_unset(), adamw(kRate));
    expect_error(Code::kNotFound, {"missing key", removed[0], removed[1], removed[2]},
                 [&] { load(fresh, part); });
    EXPECT_EQ(load(fresh, part, /*partial=*/true).missing, removed);
    const StateDict loaded = full_state(fresh);
    for (const ckpt::StateTensor& tensor : loaded.tensors) {
      const bool is_missing =
          std::find(removed.begin(), removed.end(), tensor.name) != removed.end();
      const at::Tensor expected = find_tensor(full, tensor.name);
      EXPECT_TRUE(tensor.local.equal(is_missing ? at::zeros_like(expected) : expected))
          << tensor.name;
    }
  });
}

}  // namespace
}  // namespace fsdp2::checklist
