// Wrapping rules with a policy and a mesh of their own.
#include "core/fsdp/wrap.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/fsdp/fully_shard.h"
#include "core/fsdp/tree.h"
#include "core/train/optim/grad_norm.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

constexpr TinyStackOptions kStack{8, 8, 3};

Policy in_16_bits() {
  Policy policy;
  policy.mixed_precision.param_dtype = at::kBFloat16;
  policy.mixed_precision.reduce_dtype = at::kFloat;
  policy.mixed_precision.output_dtype = at::kFloat;
  policy.reshard_after_forward = ReshardAfterForward::kAlways;
  return policy;
}

// "in.weight" of each block goes by a rule of its own; the rest by the blocks'.
Wrap ruled() {
  Wrap wrap;
  wrap.names = {"block0.in", "block1.in", "block2.in"};
  return wrap;
}

at::Tensor wrapped_input(int rank, int step = 0) {
  return at::randn({3, 8}, at::detail::createCPUGenerator(static_cast<uint64_t>(10 * step + rank)));
}

at::Tensor wrapped_loss(nn::Module& model, int rank, int step = 0) {
  return model(wrapped_input(rank, step)).square().sum() / 10.0;
}

TEST(WrapRule, GivesWhatUnitsMadeByHandGive) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto whole = Mesh::for_fsdp(world, 0);
    const auto halves = Mesh::for_fsdp(world, 2);
    const auto by_rule = std::make_shared<TinyStack>(kStack);
    EXPECT_EQ(wrap_modules(by_rule, halves, in_16_bits(), ruled()), 3);
    const auto rule_root = fully_shard_by_kind(by_rule, whole, {}, {"TinyBlock"});
    const auto by_hand = std::make_shared<TinyStack>(kStack);
    for (const std::shared_ptr<TinyBlock>& block : by_hand->blocks) {
      fully_shard(block->in, halves, in_16_bits());
      fully_shard(block, whole, {});
    }
    const auto hand_root = fully_shard(by_hand, whole, {});

    EXPECT_EQ(rule_root->describe(), hand_root->describe());
    at::Tensor losses[2];
    losses[0] = wrapped_loss(*by_rule, world->rank());
    losses[1] = wrapped_loss(*by_hand, world->rank());
    EXPECT_TRUE(at::equal(losses[0], losses[1]));
    losses[0].backward();
    losses[1].backward();
    for (size_t i = 0; i < rule_root->parameters().size(); ++i) {
      const ShardedParam& param = *rule_root->parameters()[i];
      const ShardedParam& other = *hand_root->parameters()[i];
      EXPECT_TRUE(at::equal(param.sharded().grad(), other.sharded().grad())) << param.name();
    }
    EXPECT_EQ(find_unit(*by_rule->blocks[1]->in)->group()->shard_comm(Lane::kGather).size(), 2);
    EXPECT_EQ(find_unit(*by_rule->blocks[1])->group()->shard_comm(Lane::kGather).size(), 4);
    EXPECT_EQ(find_unit(*by_rule->blocks[1]->in)->group()->params()[0]->compute_dtype(),
              at::kBFloat16);
    EXPECT_EQ(find_unit(*by_rule->blocks[1])->group()->params()[0]->compute_dtype(), at::kFloat);
  });
}

TEST(WrapRule, UnitsOverTwoMeshesTrainLikeTheWholeModel) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<TinyStack>(kStack);
    Policy to_halves;
    to_halves.reshard_after_forward = ReshardAfterForward::kSmaller;
    to_halves.reshard_world = 2;
    wrap_modules(model, Mesh::for_fsdp(world, 2), {}, ruled());
    const auto root =
        fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), to_halves, {"TinyBlock"});
    TinyStack reference(kStack);
    checklist::expect_same_training(
        {*root, *model, reference, world->rank(), 4}, {},
        [](nn::Module& module, int batch, int rank) { return wrapped_loss(module, rank, batch); });
  });
}

TEST(WrapRule, ValuesAndNormsAreThoseOfEachUnitsOwnMesh) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<TinyStack>(kStack);
    wrap_modules(model, Mesh::for_fsdp(world, 2), {}, ruled());
    const auto root = fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), {}, {"TinyBlock"});
    wrapped_loss(*model, world->rank()).backward();
    TinyStack reference(kStack);
    checklist::averaged_backward(
        reference, 4, [](nn::Module& module, int rank) { return wrapped_loss(module, rank); });
    double squares = 0.0;
    for (const ShardedParam* param : root->parameters()) {
      const at::Tensor expected = checklist::find_parameter(reference, param->name());
      checklist::expect_close(full_parameter(*root, *param), expected, checklist::kExact,
                              param->name());
      checklist::expect_close(full_gradient(*root, *param), expected.grad(), checklist::kT32,
                              param->name());
      squares += expected.grad().square().sum().item<double>();
    }
    checklist::expect_close(train::global_grad_norm(*root, 2.0), std::sqrt(squares),
                            checklist::kT32, "norm");
  });
}

TEST(WrapRule, AMeshOfAnotherJobIsRefused) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    WorldOptions alone;
    alone.backend = BackendKind::kFake;
    alone.world_size = 2;
    const auto model = std::make_shared<TinyStack>(kStack);
    wrap_modules(model, Mesh::for_fsdp(World::join(alone), 0), {}, ruled());
    const auto root = fully_shard(model, Mesh::for_fsdp(world, 0), {});
    const std::string message = message_of_error([&] { root->tree(); }, Code::kInvalidArgument);
    EXPECT_NE(message.find("a mesh of another job"), std::string::npos) << message;
  });
}

// Remembers in which dtype its input came.
class DtypeWitness : public TinyLinear {
 public:
  explicit DtypeWitness(bool keeps) : TinyLinear(4, 4), keeps_(keeps) {}
  bool keeps_input_dtypes() const override { return keeps_; }
  at::ScalarType seen = at::kDouble;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    seen = inputs[0].toTensor().scalar_type();
    return TinyLinear::forward({inputs[0].toTensor().to(weight.scalar_type())});
  }

 private:
  bool keeps_;
};

TEST(WrapRule, AModuleThatKeepsItsInputsDtypesIsNotGivenOthers) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    for (const bool keeps : {false, true}) {
      const auto model = std::make_shared<DtypeWitness>(keeps);
      model->weight.detach().fill_(1);
      model->bias.detach().fill_(1);
      fully_shard(model, Mesh::for_fsdp(world, 0), in_16_bits());
      (*model)(at::ones({2, 4}));
      EXPECT_EQ(model->seen, keeps ? at::kFloat : at::kBFloat16);
    }
  });
}

}  // namespace
}  // namespace fsdp2::fsdp
