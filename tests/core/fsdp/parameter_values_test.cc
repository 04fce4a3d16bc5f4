// Values that are read for all by rank 0, or by each rank for itself.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "core/base/error.h"
#include "core/fsdp/fully_shard.h"
#include "core/nn/parameter_source.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

// Every element is 3; a name that it does not have is missing.
class Threes : public nn::ParameterSource {
 public:
  explicit Threes(std::set<std::string> missing = {}) : missing_(std::move(missing)) {}

  void read(const std::string& name, at::IntArrayRef /*shape*/, int64_t /*first_row*/,
            at::Tensor out) override {
    ++reads;
    FSDP2_CHECK(missing_.count(name) == 0, Code::kNotFound, "no parameter {}", name);
    out.fill_(3.0);
  }

  int reads = 0;

 private:
  std::set<std::string> missing_;
};

struct ShardedValues {
  std::shared_ptr<TinyStack> model;
  std::shared_ptr<Unit> root;
};

// Without values; the last block's first weight and bias are ignored.
ShardedValues shard(const std::shared_ptr<World>& world) {
  ShardedValues sharded;
  sharded.model = std::make_shared<TinyStack>(TinyStackOptions{4, 6, 2});
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*sharded.model)) {
    const at::Tensor& tensor = parameter.tensor;
    tensor.set_data(nn::deferred_parameter(tensor.sizes(), tensor.scalar_type()).detach());
  }
  const TinyLinear& ignored = *sharded.model->blocks[1]->in;
  Policy policy;
  policy.ignored = {ignored.weight, ignored.bias};
  sharded.root =
      fully_shard_by_kind(sharded.model, Mesh::for_fsdp(world, 0), policy, {"TinyBlock"});
  return sharded;
}

constexpr int kParameters = 10;

TEST(LoadFromRankZero, TheOthersReadNothing) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    const ShardedValues s = shard(world);
    Threes source;
    load_parameters(*s.root, source, LoadFrom::kRankZero);
    EXPECT_EQ(source.reads, world->rank() == 0 ? kParameters : 0);
    EXPECT_TRUE(s.model->blocks[1]->in->weight.eq(3.0).all().item<bool>());
    EXPECT_TRUE(s.model->blocks[1]->in->bias.eq(3.0).all().item<bool>());
    for (const ShardedParam* param : s.root->parameters()) {
      EXPECT_TRUE(param->local_values().eq(3.0).all().item<bool>()) << param->name();
    }
  });
}

TEST(LoadFromRankZero, AMissingIgnoredParameterIsEveryRanksErrorAndMayBeTriedAgain) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedValues s = shard(world);
    Threes broken({"block1.in.bias"});
    try {
      load_parameters(*s.root, broken, LoadFrom::kRankZero);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), world->rank() == 0 ? Code::kNotFound : Code::kPeerFailed);
      EXPECT_NE(error.message().find("block1.in.bias"), std::string::npos) << error.message();
    }
    Threes source;
    load_parameters(*s.root, source, LoadFrom::kRankZero);
    EXPECT_TRUE(s.model->blocks[1]->in->bias.eq(3.0).all().item<bool>());
  });
}

// A lone rank's memory is not zeroed before values are read into it, so nobody may see it without.
TEST(LoadByEveryRank, AFailedReadLeavesNoMemoryWithoutValuesAndMayBeTriedAgain) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    const ShardedValues s = shard(world);
    Threes broken({"block1.out.weight"});
    EXPECT_THROW(load_parameters(*s.root, broken), Error);
    for (const ShardedParam* param : s.root->parameters()) {
      if (param->name() == "block1.out.weight") {
        EXPECT_TRUE(nn::has_no_memory(param->unsharded()));
        EXPECT_TRUE(param->local_values().eq(0.0).all().item<bool>());
      }
    }
    Threes source;
    load_parameters(*s.root, source);
    EXPECT_EQ(source.reads, kParameters);
    for (const ShardedParam* param : s.root->parameters()) {
      EXPECT_TRUE(param->local_values().eq(3.0).all().item<bool>()) << param->name();
    }
  });
}

}  // namespace
}  // namespace fsdp2::fsdp
