// Checklist, gradient clipping and scaling over shards: CLP, and AUT-4.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/train/optim/grad_norm.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

double norm_of(const nn::Module& module, double p) {
  std::vector<at::Tensor> norms;
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
    norms.push_back(at::norm(parameter.tensor.grad(), p));
  }
  return at::norm(at::stack(norms), p).item<double>();
}

TEST(ChecklistClp, CLP1_ClippingByTheNormOverAllShards) {
  run_ranks(2, [](const WorldPtr& world) {
    const TransformerOptions options{2};
    const auto model = seed(std::make_shared<TinyTransformer>(options));
    const auto reference = seed(std::make_shared<TinyTransformer>(options));
    const UnitPtr root = shard_blocks_and_root(model, flat_mesh(world), policy_unset());
    const Loss loss = [&](nn::Module& module, int rank) {
      return module(random_tokens({3, 16}, options.tokens, 0, rank)).sum();
    };
    loss(*model, world->rank()).backward();
    averaged_backward(*reference, world->size(), loss);
    const int64_t before = world->control().counters().all_reduces;
    const double norm = train::global_grad_norm(*root);
    EXPECT_EQ(world->control().counters().all_reduces, before + 1);
    const double expected = norm_of(*reference, 2.0);
    expect_close(norm, expected, kT32, "norm");
    ASSERT_GT(expected, 1.0);
    train::divide_gradients(*root, train::clip_divisor(norm, 1.0));
    for (const at::Tensor& parameter : trainable_parameters(*reference)) {
      parameter.grad().mul_(1.0 / (expected + 1e-6));
    }
    expect_parity(*root, *reference, kT32, "clipped");
    expect_close(train::global_grad_norm(*root), 1.0, kT32, "norm after clipping");
  });
}

TEST(ChecklistClp, CLP1_OtherNorms) {
  run_ranks(4, [](const WorldPtr& world) {
    // 5 rows and 3 biases over 4 ranks: some shards are empty.
    const auto model = seed(make_linears({4, 5, 3}));
    const auto reference = seed(make_linears({4, 5, 3}));
    const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset());
    const Loss loss = [](nn::Module& module, int rank) {
      return module(random_input({3, 4}, 0, rank)).sum();
    };
    loss(*model, world->rank()).backward();
    averaged_backward(*reference, 4, loss);
    for (const double p : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
      expect_close(train::global_grad_norm(*root, p), norm_of(*reference, p), kT32,
                   "norm of p = " + std::to_string(p));
    }
  });
}

TEST(ChecklistClp, CLP1_ReplicasCountOnce) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto model = seed(make_linears({4, 5, 3}));
    const auto reference = seed(make_linears({4, 5, 3}));
    const UnitPtr root = fsdp::fully_shard(model, hybrid_mesh(world, 2), policy_unset());
    const Loss loss = [](nn::Module& module, int rank) {
      return module(random_input({3, 4}, 0, rank)).sum();
    };
    loss(*model, world->rank()).backward();
    averaged_backward(*reference, 4, loss);
    for (const double p : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
      expect_close(train::global_grad_norm(*root, p), norm_of(*reference, p), kT32,
                   "norm of p = " + std::to_string(p));
    }
  });
}

// The other ranks of a mesh that is a slice of the world hold the same shards.
TEST(ChecklistClp, CLP1_RanksBesideASliceCountOnce) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto mesh = Mesh::create(world, {2, 2}, {"dp", "tp"});
    const auto model = seed(make_linears({4, 5, 3}));
    const auto reference = seed(make_linears({4, 5, 3}));
    const UnitPtr root = fsdp::fully_shard(model, mesh->submesh({"dp"}), policy_unset());
    const Loss loss = [](nn::Module& module, int rank) {
      return module(random_input({3, 4}, 0, rank)).sum();
    };
    loss(*model, world->rank() / 2).backward();
    averaged_backward(*reference, 2, loss);
    for (const double p : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
      expect_close(train::global_grad_norm(*root, p), norm_of(*reference, p), kT32,
                   "norm of p = " + std::to_string(p));
    }
  });
}

// A loss scale that backs off by half after an overflow; the caller of such a loop is the trainer
// of a model in fp16.
struct ScaledStep {
  double scale = 2.0;
  bool stepped = false;

  void run(Unit& root, PlainOptimizer& optimizer) {
    train::divide_gradients(root, scale);
    stepped = !train::gradients_overflow(root);
    if (stepped) {
      optimizer.step();
    } else {
      scale /= 2.0;
    }
  }
};

TEST(ChecklistAut, AUT4_AnOverflowOnOneRankSkipsTheStepOnAll) {
  for (const bool overflows : {false, true}) {
    run_ranks(4, [&](const WorldPtr& world) {
      const auto model = seed(std::make_shared<Sequence>(std::vector<ModulePtr>{
          std::make_shared<Linear>(4, 4, false), std::make_shared<Linear>(4, 4, false)}));
      const UnitPtr root = shard_items_and_root(model, flat_mesh(world), policy_unset());
      PlainOptimizer optimizer(trainable_shards(*root), Rule::kAdam, 1e-2);
      ScaledStep scaled;
      ((*model)(random_input({4, 4}, 0, world->rank())).sum() * scaled.scale).backward();
      std::vector<at::Tensor> halves;
      std::vector<at::Tensor> values;
      for (const at::Tensor& shard : trainable_shards(*root)) {
        halves.push_back(shard.grad() / 2.0);
        values.push_back(shard.detach().clone());
      }
      if (overflows && world->rank() == 1) {
        trainable_shards(*root)[0].grad()[0][0] = std::numeric_limits<float>::infinity();
      }
      scaled.run(*root, optimizer);
      EXPECT_EQ(scaled.stepped, !overflows);
      EXPECT_EQ(scaled.scale, overflows ? 1.0 : 2.0);
      for (size_t i = 0; i < values.size(); ++i) {
        const at::Tensor shard = trainable_shards(*root)[i];
        EXPECT_EQ(shard.equal(values[i]), overflows);
        EXPECT_TRUE(overflows || shard.grad().equal(halves[i]));
      }
    });
  }
}

}  // namespace
}  // namespace fsdp2::checklist
