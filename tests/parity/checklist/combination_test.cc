// Beyond the checklist's lines: their options combined, against the averaged reference.
#include <gtest/gtest.h>

#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

struct Combination {
  Policy policy;
  int64_t shards = 0;  // of a replica; 0: all ranks
  bool by_largest_dim = false;
  bool accumulates = false;  // two microbatches, reduced with the second
};

std::string text_of(const Combination& c) {
  return "schedule " + std::to_string(static_cast<int>(c.policy.schedule)) + ", reshard " +
         std::to_string(static_cast<int>(c.policy.reshard_after_forward)) + ", path " +
         std::to_string(static_cast<int>(c.policy.comm_path)) + ", shards " +
         std::to_string(c.shards) + (c.by_largest_dim ? ", largest dim" : "") +
         (c.accumulates ? ", accumulates" : "");
}

// Three AdamW steps of TinyTransformer(2) on 4 ranks.
void expect_training(const Combination& c) {
  SCOPED_TRACE(text_of(c));
  run_ranks(4, [&](const WorldPtr& world) {
    const auto model = seed(std::make_shared<TinyTransformer>(TransformerOptions{2}));
    const auto reference = seed(std::make_shared<TinyTransformer>(TransformerOptions{2}));
    Policy policy = c.policy;
    if (c.by_largest_dim) {
      policy.shard_dim = largest_dim;
    }
    const UnitPtr root = shard_blocks_and_root(model, hybrid_mesh(world, c.shards), policy);
    Training training;
    training.steps = 3;
    training.rule = Rule::kAdamW;
    if (c.accumulates) {
      training.microbatches = 2;
      training.before = [&](int micro) { root->set_requires_gradient_sync(micro == 1); };
    }
    expect_same_training({*root, *model, *reference, world->rank(), 4}, training,
                         [](nn::Module& module, int batch, int rank) {
                           return module(random_tokens({2, 8}, 8, batch, rank)).sum();
                         });
    EXPECT_EQ(root->scheduler().stats().unsharded_bytes, 0);
  });
}

TEST(Combinations, ReshardByMeshByDimByAccumulation) {
  std::vector<Policy> policies = policies_true_false_two();
  for (const Policy& policy : by_both_schedules({policy_unset()})) {
    policies.push_back(policy);
  }
  for (const Policy& policy : policies) {
    for (const int64_t shards : {0, 2}) {
      for (const bool by_largest_dim : {false, true}) {
        for (const bool accumulates : {false, true}) {
          expect_training({policy, shards, by_largest_dim, accumulates});
        }
      }
    }
  }
}

TEST(Combinations, PathsByReshardByDim) {
  for (const fsdp::CommPath path : {fsdp::CommPath::kDirect, fsdp::CommPath::kPacked}) {
    for (Policy policy : policies_true_false_two()) {
      policy.comm_path = path;
      for (const bool by_largest_dim : {false, true}) {
        expect_training({policy, 0, by_largest_dim, /*accumulates=*/true});
      }
    }
  }
}

// Gradients of three microbatches, reduced over the shards each time and over the replicas with the
// last.
TEST(Combinations, ReplicasAreReducedWithTheLastMicrobatch) {
  for (const Policy& policy : policies_true_false()) {
    run_ranks(4, [&](const WorldPtr& world) {
      const auto model = seed(make_stack3(8));
      const auto reference = seed(make_stack3(8));
      const UnitPtr root = shard_items_and_root(model, hybrid_mesh(world, 2), policy);
      Training training;
      training.steps = 3;
      training.microbatches = 3;
      training.before = [&](int micro) { root->set_requires_all_reduce(micro == 2); };
      expect_same_training({*root, *model, *reference, world->rank(), 4}, training,
                           [](nn::Module& module, int batch, int rank) {
                             return module(random_input({4, 8}, batch, rank)).sum();
                           });
      EXPECT_EQ(root->scheduler().stats().reduce_scatters, 3 * 3 * 3);
      EXPECT_EQ(root->scheduler().stats().all_reduces, 3 * 3);
    });
  }
}

// What is unsharded after one backward is used by the next forward, and freed with the last.
TEST(Combinations, ParametersStayUnshardedBetweenMicrobatches) {
  for (const Policy& policy : by_both_schedules({policy_false()})) {
    run_ranks(4, [&](const WorldPtr& world) {
      const auto model = seed(make_stack3(8));
      const auto reference = seed(make_stack3(8));
      const UnitPtr root = shard_items_and_root(model, flat_mesh(world), policy);
      Training training;
      training.steps = 3;
      training.microbatches = 3;
      training.before = [&](int micro) {
        root->set_requires_gradient_sync(micro == 2);
        root->set_is_last_backward(micro == 2);
        root->set_reshard_after_backward(micro == 2);
      };
      expect_same_training({*root, *model, *reference, world->rank(), 4}, training,
                           [](nn::Module& module, int batch, int rank) {
                             return module(random_input({4, 8}, batch, rank)).sum();
                           });
      EXPECT_EQ(root->scheduler().stats().unsharded_bytes, 0);
    });
  }
}

}  // namespace
}  // namespace fsdp2::checklist
