// A unit that backward does without: one gather fewer, and a clear error if it cannot.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/fsdp/fully_shard.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/checklist_models.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

using fsdp::Policy;
using fsdp::Schedule;
using fsdp::Unit;

// Rows of a table, which the root owns, through two MLPs that are units of their own.
class Embedded : public nn::Module {
 public:
  Embedded() : nn::Module("Embedded") {
    table = register_parameter("table", at::zeros({12, 4}));
    for (const char* name : {"first", "second"}) {
      mlps.push_back(register_module(name, std::make_shared<Mlp>(4)));
    }
  }
  at::Tensor table;
  std::vector<std::shared_ptr<Mlp>> mlps;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    at::Tensor x = at::embedding(table, inputs[0].toTensor());
    for (const auto& mlp : mlps) {
      x = (*mlp)(x);
    }
    return x;
  }
};

struct ShardedChain {
  std::shared_ptr<Embedded> model = seed(std::make_shared<Embedded>(), 3);
  std::shared_ptr<Unit> root;
};

ShardedChain shard(const std::shared_ptr<World>& world, Schedule schedule) {
  Policy policy;
  policy.reshard_after_forward = fsdp::ReshardAfterForward::kAlways;
  policy.schedule = schedule;
  const auto mesh = Mesh::for_fsdp(world, 0);
  ShardedChain sharded;
  for (const auto& mlp : sharded.model->mlps) {
    fsdp::fully_shard(mlp, mesh, policy);
  }
  sharded.root = fsdp::fully_shard(sharded.model, mesh, policy);
  return sharded;
}

at::Tensor loss_of(nn::Module& model, int rank) {
  return model(random_tokens({3, 5}, 12, 0, rank)).square().sum();
}

TEST(UnshardInBackward, OffSavesTheGatherOfAnEmbedding) {
  for (const Schedule schedule : {Schedule::kAgreed, Schedule::kOnUse}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      const ShardedChain all = shard(world, schedule);
      const ShardedChain fewer = shard(world, schedule);
      fewer.root->set_unshard_in_backward(false);
      for (int step = 0; step < 2; ++step) {
        for (const ShardedChain* s : {&all, &fewer}) {
          s->root->zero_grad();
          const at::Tensor loss = loss_of(*s->model, world->rank());
          s->root->scheduler().reset_stats();
          loss.backward();
          EXPECT_EQ(s->root->scheduler().stats().all_gathers, s == &all ? 3 : 2);
        }
        for (size_t i = 0; i < all.root->parameters().size(); ++i) {
          const at::Tensor& gradient = all.root->parameters()[i]->sharded().grad();
          EXPECT_TRUE(fewer.root->parameters()[i]->sharded().grad().equal(gradient));
        }
      }
    });
  }
}

std::string message_of_backward(const at::Tensor& loss) {
  try {
    loss.backward();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kWrongState);
    return error.message();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(UnshardInBackward, OffNamesTheUnitWhoseWeightsAreNeeded) {
  for (const Schedule schedule : {Schedule::kAgreed, Schedule::kOnUse}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      const ShardedChain s = shard(world, schedule);
      Unit& second = *fsdp::find_unit(*s.model->mlps[1]);
      second.set_unshard_in_backward(false);
      const std::string message = message_of_backward(loss_of(*s.model, world->rank()));
      EXPECT_NE(message.find("unit 'second'"), std::string::npos) << message;
      EXPECT_NE(message.find("second.out_proj.weight"), std::string::npos) << message;
      s.root->reset();
      second.set_unshard_in_backward(true);
      loss_of(*s.model, world->rank()).backward();  // as if nothing had been
      EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
    });
  }
}

// Nothing has watched what that forward saved.
TEST(UnshardInBackward, OffCountsFromTheNextForwardOn) {
  for (const Schedule schedule : {Schedule::kAgreed, Schedule::kOnUse}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      const ShardedChain s = shard(world, schedule);
      Unit& second = *fsdp::find_unit(*s.model->mlps[1]);
      const at::Tensor loss = loss_of(*s.model, world->rank());
      second.set_unshard_in_backward(false);
      second.reshard();
      loss.backward();
      EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
      message_of_backward(loss_of(*s.model, world->rank()));
      s.root->reset();
    });
  }
}

// Whose weights are there all the same: kept since forward, or gathered by hand.
TEST(UnshardInBackward, OffIsNoErrorWhileTheWeightsAreThere) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const ShardedChain s = shard(world, Schedule::kAgreed);
    Unit& second = *fsdp::find_unit(*s.model->mlps[1]);
    second.set_unshard_in_backward(false);
    const at::Tensor loss = loss_of(*s.model, world->rank());
    second.unshard();
    loss.backward();
    second.set_reshard_after_forward(false);
    loss_of(*s.model, world->rank()).backward();
  });
}

// What a unit's checkpointed segment needs when it runs again cannot be told from what it saves.
TEST(UnshardInBackward, OffIsRefusedForAUnitThatRunsAgain) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const ShardedChain s = shard(world, Schedule::kAgreed);
    nn::checkpoint_activations(*s.model->mlps[1]);
    Unit& second = *fsdp::find_unit(*s.model->mlps[1]);
    second.set_unshard_in_backward(false);
    try {
      loss_of(*s.model, world->rank());
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kWrongState);
      EXPECT_NE(error.message().find("unit 'second'"), std::string::npos) << error.message();
    }
    second.set_unshard_in_backward(true);
    s.root->set_unshard_in_backward(false);  // whose own table is in no segment
    loss_of(*s.model, world->rank()).backward();
    EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
  });
}

}  // namespace
}  // namespace fsdp2::checklist
