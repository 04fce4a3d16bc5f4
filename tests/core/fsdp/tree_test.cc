// What units share once the outermost of them is used: names, one scheduler, parameters.
#include "core/fsdp/tree.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/fsdp/fully_shard.h"
#include "core/nn/kernels/matmul_precision.h"
#include "core/nn/kernels/widened_product.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

// Runs `use`, which is to fail with kWrongState and this text.
template <typename Use>
void expect_wrong_state(Use&& use, const char* text) {
  try {
    use();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kWrongState);
    EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
  }
}

TEST(Tree, UnitsShareOneAndAreNamedFromTheRoot) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{4, 6, 2});
    const auto root =
        fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), {}, {"TinyBlock", "TinyLinear"});
    EXPECT_FALSE(root->in_tree());
    EXPECT_EQ(root->name(), "");
    std::vector<std::string> names;
    for (const std::shared_ptr<Unit>& unit : root->units()) {
      EXPECT_EQ(&unit->tree(), &root->tree());
      EXPECT_EQ(unit->is_root(), unit == root);
      names.push_back(unit->name());
    }
    EXPECT_EQ(names.front(), "");
    EXPECT_NE(std::find(names.begin(), names.end(), "block1"), names.end());
    EXPECT_EQ(root->parameters().size(), model->parameters().size());
  });
}

// It has an index in the tree, but none in the scheduler.
TEST(Tree, AUnitWithoutParametersTakesNoPartInTheSchedule) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::for_fsdp(world, 0);
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{4, 6, 1});
    const std::shared_ptr<TinyBlock>& block = model->blocks.front();
    fully_shard(block->in, mesh, {});
    fully_shard(block->out, mesh, {});
    fully_shard(block, mesh, {});  // all it has is sharded below it
    const auto root = fully_shard(model, mesh, {});
    (*model)(at::ones({2, 4})).sum().backward();
    EXPECT_EQ(root->units().size(), 4U);
    std::vector<std::string> members;
    for (const Scheduler::Member& member : root->scheduler().members()) {
      members.push_back(member.name);
    }
    EXPECT_EQ(members, (std::vector<std::string>{"", "block0.in", "block0.out"}));
    EXPECT_EQ(root->scheduler().stats().reduce_scatters, 3);
    find_unit(*block->out)->unshard();
    EXPECT_EQ(find_unit(*block->out)->group()->state(), GroupState::kUnsharded);
    find_unit(*block->out)->reshard();
    EXPECT_EQ(root->scheduler().stats().unsharded_bytes, 0);
  });
}

TEST(Tree, TheOutermostUnitMustBeUsedFirst) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{4, 6, 2});
    const auto root = fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), {}, {"TinyBlock"});
    (*model->blocks[1])(at::ones({2, 4}));
    expect_wrong_state([&] { root->tree(); }, "unit 'block1' below TinyStack has been used as a");
    EXPECT_FALSE(root->in_tree());
  });
}

TEST(Tree, AListOfModulesCannotBeTheRoot) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{4, 6, 2});
    const auto unit = fully_shard(
        std::vector<std::shared_ptr<nn::Module>>(model->blocks.begin(), model->blocks.end()),
        Mesh::for_fsdp(world, 0), {});
    expect_wrong_state([&] { unit->tree(); }, "a single root module is required: 2 modules");
  });
}

// It is for the whole process, which may plan, too.
TEST(Tree, AFakeTeamAndALoneRankLeaveWhatRanksHaveSettledOnProducts) {
  const auto make_tree = [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{128, 128, 1});
    Policy policy;
    policy.mixed_precision.param_dtype = at::kBFloat16;
    fully_shard(model, Mesh::for_fsdp(world, 0), policy)->units();
  };
  WorldOptions fake;
  fake.backend = BackendKind::kFake;
  fake.rank = 0;
  fake.world_size = 2;
  nn::set_matmul_precision(nn::MatmulPrecision::kHigh);
  for (const bool are_faster : {true, false}) {
    nn::settle_parts(are_faster);
    nn::settle_bf16_products(are_faster);
    make_tree(World::join(fake));
    EXPECT_EQ(nn::product_parts() > 0, are_faster);
    EXPECT_EQ(nn::bf16_products_are_widened(), are_faster);
    run_ranks(1, make_tree);
    EXPECT_EQ(nn::product_parts() > 0, are_faster);
    EXPECT_EQ(nn::bf16_products_are_widened(), are_faster);
  }
  nn::set_bf16_products(nn::Bf16Products::kAuto);
  nn::set_matmul_precision(nn::MatmulPrecision::kHighest);
}

}  // namespace
}  // namespace fsdp2::fsdp
