// Mistakes of those who shard a model, and a forward that throws.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "core/fsdp/fully_shard.h"
#include "tests/core/fsdp/sharded_stack.h"
#include "tests/support/ranks.h"

namespace fsdp2::fsdp {
namespace {

TEST(Errors, ShardingTwiceOrAChildAfterItsParent) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard_stack(world, {4, 6, 2});
    const auto mesh = Mesh::for_fsdp(world, 0);
    EXPECT_THROW(fully_shard(s.model, mesh, {}), Error);
    EXPECT_THROW(fully_shard(s.model->blocks[0]->in, mesh, {}), Error);
    (*s.model)(ones_of(4)).sum().backward();  // still works
  });
}

TEST(Errors, RanksWithDifferentPlansAllGetTheSameError) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    auto model = std::make_shared<TinyStack>(TinyStackOptions{4, world->rank() == 2 ? 8 : 6, 2});
    const auto root = fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), {}, {"TinyBlock"});
    try {
      (*model)(ones_of(4));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(error.message().find("block0.in.weight"), std::string::npos) << error.message();
    }
  });
}

TEST(Errors, DetailedChecksNameTheUnitsThatRanksGatherAtOnce) {
  setenv("FSDP2_DEBUG", "detail", 1);
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard_stack(world, {4, 6, 2});
    (*s.model)(ones_of(4)).sum().backward();
    try {
      find_unit(*s.model->blocks[static_cast<size_t>(world->rank())])->unshard();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(error.message().find("the ranks differ: rank 0 has all_gather of Byte ["),
                std::string::npos)
          << error.message();
      for (const char* name : {" for block0.in.weight", " for block1.in.weight"}) {
        EXPECT_NE(error.message().find(name), std::string::npos) << error.message();
      }
    }
  });
  unsetenv("FSDP2_DEBUG");
}

TEST(Errors, ATieThatIsSplitOverUnitsByHand) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    TinyStackOptions options{6, 6, 2};
    options.tied = true;
    auto model = std::make_shared<TinyStack>(options);
    const auto mesh = Mesh::for_fsdp(world, 0);
    fully_shard(model->blocks[1], mesh, {});
    const auto root = fully_shard(model, mesh, {});
    try {
      (*model)(ones_of(6));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(error.message().find("block1.out.weight"), std::string::npos) << error.message();
    }
  });
}

TEST(Errors, ADeferredParameterWithoutValues) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    auto model = std::make_shared<TinyLinear>(4, 4);
    model->weight.set_data(nn::deferred_parameter({4, 4}, at::kFloat).detach());
    const auto root = fully_shard(model, Mesh::for_fsdp(world, 0), {});
    try {
      (*model)(ones_of(4));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kWrongState);
      EXPECT_NE(error.message().find("weight"), std::string::npos) << error.message();
    }
  });
}

TEST(Errors, AThrowingForwardLeavesTheTreeSharded) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard_stack(world, {4, 6, 2});
    EXPECT_ANY_THROW((*s.model)(ones_of(3)));  // wrong width, on every rank
    EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
    (*s.model)(ones_of(4)).sum().backward();
    EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
  });
}

}  // namespace
}  // namespace fsdp2::fsdp
