// Beyond the checklist's lines: what callers do with the graph of a sharded module's forward. Three
// MLP(8), each a group, on two ranks with different inputs.
#include <gtest/gtest.h>

#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

at::Tensor input_of(int batch, int rank) { return random_input({4, 8}, batch, rank); }

// Does something with a module that ends in gradients; `is_sharded`: it is not the reference.
using Use = std::function<void(nn::Module& module, int rank, bool is_sharded)>;

// The use leaves the same gradients as in the reference, averaged, and nothing unsharded behind.
void expect_same_gradients(const Use& use) {
  for (const Policy& policy : policies_true_false_two()) {
    run_ranks(2, [&](const WorldPtr& world) {
      const auto model = seed(make_stack3(8));
      const auto reference = seed(make_stack3(8));
      const UnitPtr root = shard_items_and_root(model, flat_mesh(world), policy);
      use(*model, world->rank(), true);
      for (int rank = 0; rank < 2; ++rank) {
        use(*reference, rank, false);
      }
      for (const at::Tensor& parameter : reference->parameters()) {
        parameter.grad().div_(2.0);
      }
      expect_parity(*root, *reference, kT32, "after the use");
      EXPECT_EQ(root->scheduler().stats().unsharded_bytes, 0);
    });
  }
}

TEST(GraphUse, GradientsOfInputs) {
  expect_same_gradients([](nn::Module& module, int rank, bool is_sharded) {
    const at::Tensor x = input_of(0, rank).requires_grad_(true);
    module(x).square().sum().backward();
    ASSERT_TRUE(x.grad().defined());
    const auto other = seed(make_stack3(8));
    const at::Tensor y = input_of(0, rank).requires_grad_(true);
    (*other)(y).square().sum().backward();
    expect_close(x.grad(), y.grad(), kT32, is_sharded ? "sharded" : "reference");
  });
}

TEST(GraphUse, BackwardWithGivenOutputGradients) {
  expect_same_gradients([](nn::Module& module, int rank, bool /*is_sharded*/) {
    module(input_of(0, rank)).backward(input_of(1, rank));
  });
}

TEST(GraphUse, TwoBackwardsThroughOneGraph) {
  expect_same_gradients([](nn::Module& module, int rank, bool /*is_sharded*/) {
    const at::Tensor loss = module(input_of(0, rank)).square().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
}

TEST(GraphUse, TwoForwardsThenBackwardsInOrder) {
  expect_same_gradients([](nn::Module& module, int rank, bool /*is_sharded*/) {
    const at::Tensor first = module(input_of(0, rank)).square().sum();
    const at::Tensor second = module(input_of(1, rank)).square().sum();
    first.backward();
    second.backward();
  });
}

TEST(GraphUse, TwoForwardsThenBackwardsInReverse) {
  expect_same_gradients([](nn::Module& module, int rank, bool /*is_sharded*/) {
    const at::Tensor first = module(input_of(0, rank)).square().sum();
    const at::Tensor second = module(input_of(1, rank)).square().sum();
    second.backward();
    first.backward();
  });
}

TEST(GraphUse, EvaluationBetweenForwardAndBackward) {
  expect_same_gradients([](nn::Module& module, int rank, bool /*is_sharded*/) {
    const at::Tensor loss = module(input_of(0, rank)).square().sum();
    {
      const at::NoGradGuard no_grad;
      module.eval();
      module(input_of(1, rank));
      module.train();
    }
    loss.backward();
  });
}

TEST(GraphUse, AForwardWhoseGraphIsDropped) {
  expect_same_gradients([](nn::Module& module, int rank, bool /*is_sharded*/) {
    module(input_of(1, rank));
    module(input_of(0, rank)).square().sum().backward();
  });
}

TEST(GraphUse, UnshardingAndReshardingByHandBetweenForwardAndBackward) {
  expect_same_gradients([](nn::Module& module, int rank, bool is_sharded) {
    const at::Tensor loss = module(input_of(0, rank)).square().sum();
    if (is_sharded) {
      for (const UnitPtr& unit : unit_of(module).units()) {
        unit->unshard();
        unit->reshard();
      }
    }
    loss.backward();
  });
}

TEST(GraphUse, TrainingGoesOnAfterAFailedForward) {
  expect_same_gradients([](nn::Module& module, int rank, bool is_sharded) {
    if (is_sharded) {
      EXPECT_ANY_THROW(module(at::ones({4, 7})));  // wrong width, on every rank
    }
    module(input_of(0, rank)).square().sum().backward();
  });
}

TEST(GraphUse, TrainingGoesOnAfterAFailedBackward) {
  expect_same_gradients([](nn::Module& module, int rank, bool is_sharded) {
    if (is_sharded) {
      const at::Tensor output = module(input_of(1, rank));
      output.register_hook([](const at::Tensor& grad) -> at::Tensor {
        TORCH_CHECK(false, "a hook of the caller's");
        return grad;
      });
      EXPECT_ANY_THROW(output.sum().backward());
      unit_of(module).reset();
      unit_of(module).zero_grad();
    }
    module(input_of(0, rank)).square().sum().backward();
  });
}

}  // namespace
}  // namespace fsdp2::checklist
