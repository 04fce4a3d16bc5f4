// Stock Dropout and the chains that it stands in: which numbers are drawn for whom.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "tests/core/nn/stock/beside_torch.h"

namespace fsdp2::nn {
namespace {

std::shared_ptr<CustomModule> chain(double p) {
  const auto whole = make_layer("Sequential", "", {});
  whole->add_child("0", make_layer("Linear", R"({"in_features": 6, "out_features": 64})", {}));
  whole->add_child("1", make_layer("Dropout", R"({"p": )" + std::to_string(p) + "}", {}));
  CustomInit values(whole, 3);
  materialize(*whole, values);
  return whole;
}

TEST(StockDropout, ASequentialRunsItsChildrenInOrder) {
  const auto whole = chain(0.5);
  const auto first = std::dynamic_pointer_cast<Module>(whole->named_children()["0"]);
  const at::Tensor x = numbers({3, 6});
  whole->eval();
  expect_close((*whole)(x), (*first)(x), "evaluation");
  expect_close((*make_layer("Sequential", "", {}))(x), x, "empty");
  EXPECT_THROW((*whole)(Values{x, x}), Error);
  EXPECT_THROW((*make_layer("ModuleList", "", {}))(x), Error);
}

TEST(StockDropout, DropsTheShareThatItIsToldAndKeepsTheMean) {
  const auto layer = make_layer("Dropout", R"({"p": 0.25})", {});
  const at::Tensor x = at::ones({64, 1000});
  const at::Tensor rows = x + at::arange(64).view({64, 1});
  const at::Tensor kept = (*layer)(rows) / rows;
  EXPECT_NEAR(kept.eq(0).to(at::kFloat).mean().item<double>(), 0.25, 0.01);
  EXPECT_NEAR(kept.max().item<double>(), 1 / 0.75, 1e-5);
  EXPECT_FALSE((*layer)(rows).equal((*layer)(rows)));  // each call has its own masks
  EXPECT_TRUE((*make_layer("Dropout", R"({"p": 0})", {}))(x).equal(x));
  EXPECT_EQ((*layer)(at::ones({0, 3})).numel(), 0);
}

TEST(StockDropout, ARowMeetsTheSameMasksWhateverRowsAreBesideIt) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = numbers({4, 9000}).to(dtype);
    const at::Tensor together = (*make_layer("Dropout", "", {}))(x);
    const at::Tensor alone = (*make_layer("Dropout", "", {}))(x.narrow(0, 2, 2));
    EXPECT_TRUE(together.narrow(0, 2, 2).equal(alone));
    EXPECT_FALSE(together[0].eq(0).equal(together[1].eq(0)));
  }
}

// What the row was when it came in says its masks, and not what layers have made of it since.
TEST(StockDropout, TheWholesInputSaysTheMasks) {
  const auto one = chain(0.5);
  const auto other = chain(0.5);
  {
    const at::NoGradGuard no_grad;
    other->named_parameters()["0.weight"].mul_(1.001);
  }
  const at::Tensor x = numbers({4, 6});
  const at::Tensor masks = (*one)(x).eq(0);
  EXPECT_TRUE(masks.equal((*other)(x).eq(0)));
  EXPECT_FALSE(masks[0].equal(masks[1]));
  EXPECT_TRUE(masks.narrow(0, 2, 2).equal((*chain(0.5))(x.narrow(0, 2, 2)).eq(0)));
}

TEST(StockDropout, KeepsTheRowsOfABatchThatIsFolded) {
  const auto whole = make_layer("Sequential", "", {});
  whole->add_child("fold", make_layer("Flatten", R"({"start_dim": 0, "end_dim": 1})", {}));
  whole->add_child("drop", make_layer("Dropout", "", {}));
  const auto flat = make_layer("Dropout", "", {});
  const at::Tensor x = numbers({3, 4, 5});
  EXPECT_TRUE((*whole)(x).view({3, 4, 5}).equal((*flat)(x)));
}

// The first of two forwards runs again after the second.
TEST(StockDropout, ASecondRunMeetsTheMasksOfTheFirst) {
  const at::Tensor x = numbers({4, 6});
  const at::Tensor later = numbers({8, 6}).narrow(0, 4, 4);
  std::vector<at::Tensor> gradients;
  for (const bool recomputes : {false, true}) {
    const auto whole = make_layer("Sequential", "", {});
    whole->add_child("chain", chain(0.5));
    if (recomputes) {
      checkpoint_activations(*std::dynamic_pointer_cast<Module>(whole->named_children()["chain"]));
    }
    const at::Tensor y = weighted_sum((*whole)(x));
    (*whole)(later);
    y.backward();
    gradients.push_back(whole->named_parameters()["chain.0.weight"].grad());
  }
  EXPECT_TRUE(gradients[0].equal(gradients[1]));
}

// The seed is the whole's; so is the generator, also for what was put into a part before.
TEST(StockDropout, ATreeDrawsFromOneGenerator) {
  const auto whole = make_layer("Sequential", "", {at::kFloat, 5, {}});
  const auto part = make_layer("Sequential", "", {at::kFloat, 6, {}});
  EXPECT_FALSE(whole->own_generator().has_value());
  part->add_child("drop", make_layer("Dropout", "", {at::kFloat, 7, {}}));
  whole->add_child("part", part);
  ASSERT_TRUE(whole->own_generator().has_value());
  EXPECT_EQ(*whole->own_generator(), *part->own_generator());
  EXPECT_EQ(whole->own_generator()->current_seed(), 5);
}

}  // namespace
}  // namespace fsdp2::nn
