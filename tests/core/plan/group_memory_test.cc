// Plans of units whose groups give the memory of what travels: gradients are copied into it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "core/comm/mesh.h"
#include "core/comm/world.h"
#include "core/fsdp/fully_shard.h"
#include "core/fsdp/group/collectives.h"
#include "core/plan/step_plan.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::plan {
namespace {

constexpr int kRanks = 4;

std::shared_ptr<World> fake_ranks() {
  WorldOptions options;
  options.backend = BackendKind::kFake;
  options.rank = 1;
  options.world_size = kRanks;
  return World::join(options);
}

struct Planned {
  std::shared_ptr<TinyStack> model;
  std::shared_ptr<fsdp::Unit> root;
  StepPlan plan;
};

Planned plan_of(bool keep_buffers, bool in_group_memory) {
  fsdp::Policy policy;
  policy.comm_path = fsdp::CommPath::kDirect;
  policy.keep_buffers = keep_buffers;
  Planned planned;
  planned.model = std::make_shared<TinyStack>(TinyStackOptions{8, 16, 3});
  planned.root = fsdp::fully_shard_by_kind(
      planned.model, Mesh::create(fake_ranks(), {-1}, {"fsdp"}), policy, {"TinyBlock"});
  for (const auto& unit : planned.root->units()) {
    unit->set_allocate_memory_from_process_group_for_comm(in_group_memory);
  }
  planned.plan = make_step_plan(*planned.root, {});
  return planned;
}

int64_t sum_of(const KeptSizes::Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

int64_t reduction_bytes(const UnitPlan& unit) {
  return unit.reduce_buffers + sum_of(unit.kept.reduce) + sum_of(unit.kept.reduced);
}

class GroupMemoryPlan : public testing::TestWithParam<bool> {};

TEST_P(GroupMemoryPlan, CountsACopyOfEachGradientThatTravelsDirect) {
  const StepPlan before = plan_of(GetParam(), false).plan;
  const Planned after = plan_of(GetParam(), true);
  const auto& members = after.root->scheduler().members();
  ASSERT_EQ(members.size(), before.units.size());
  for (size_t i = 0; i < members.size(); ++i) {
    int64_t copied = 0;
    for (const fsdp::ShardedParam* param : members[i].group->trainable()) {
      if (fsdp::reduces_direct(*param, fsdp::CommPath::kDirect)) {
        copied += kRanks * param->layout().padded_numel() * 4;
      }
    }
    EXPECT_GT(copied, 0);
    EXPECT_EQ(reduction_bytes(after.plan.units[i]) - reduction_bytes(before.units[i]), copied)
        << before.units[i].name;
  }
  EXPECT_GT(after.plan.total(), before.total());
}

// It stays taken: of each size as many as are in use at once, with what reductions give.
TEST_P(GroupMemoryPlan, CountsWhatGroupsKeepFromStepToStep) {
  const StepPlan kept = plan_of(true, false).plan;
  const StepPlan given = plan_of(GetParam(), true).plan;
  EXPECT_EQ(given.kept, plan_of(!GetParam(), true).plan.kept);
  int64_t largest = 0;
  for (const UnitPlan& unit : given.units) {
    EXPECT_FALSE(unit.kept.reduced.empty());
    largest = std::max(largest, sum_of(unit.kept.reduced));
  }
  EXPECT_GE(given.kept, kept.kept + largest);
}

TEST(FakeGroupMemory, AStepOfAFakeGroupTakesItsMemory) {
  const Planned planned = plan_of(false, true);
  (*planned.model)(at::ones({2, 8})).sum().backward();
  for (const fsdp::ShardedParam* param : planned.root->parameters()) {
    EXPECT_TRUE(param->sharded().grad().defined()) << param->name();
  }
}

INSTANTIATE_TEST_SUITE_P(Keeping, GroupMemoryPlan, testing::Bool(),
                         [](const auto& info) { return info.param ? "On" : "Off"; });

}  // namespace
}  // namespace fsdp2::plan
