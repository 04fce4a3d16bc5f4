#include "core/nn/recompute/foreign_frame.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/nn/recompute/checkpoint_segment.h"
#include "tests/core/nn/recompute/segments.h"

namespace fsdp2::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Steps = std::vector<std::string>;

// Runs `function` as foreign code would: whatever is thrown out of it is noted.
template <typename Function>
void run_foreign(Steps& unwound, const Function& function) {
  const ForeignFrame frame;
  try {
    function();
  } catch (...) {
    unwound.emplace_back("unwound");
    throw;
  }
}

TEST(ForeignFrame, IsLeftBeforeARecomputationStops) {
  const at::Tensor w = leaf(1);
  const at::Tensor x = leaf(2);
  Steps done;
  Steps unwound;
  const auto body = [&](const Values& inputs) -> c10::IValue {
    at::Tensor first;
    run_foreign(unwound, [&] {
      first = inputs[0].toTensor().exp();  // saves the last tensor that is wanted
      done.emplace_back("inside");
    });
    done.emplace_back("after");
    const at::Tensor second = first.mm(w);
    done.emplace_back("end");
    return Tensors{first, second.tanh()};
  };
  Tensors outputs = run_as_segment("a segment", body, {x}).toTensorVector();
  outputs[1] = at::Tensor();  // frees its part of the graph
  outputs[0].sum().backward();
  EXPECT_THAT(done, ElementsAre("inside", "after", "end", "inside", "after"));
  EXPECT_THAT(unwound, IsEmpty());
  EXPECT_TRUE(at::equal(x.grad(), x.detach().exp()));
}

TEST(ForeignFrame, AtTheEndOfASegmentRunsToItsEnd) {
  const at::Tensor w = leaf(1);
  const at::Tensor x = leaf(2);
  Steps done;
  Steps unwound;
  const Function f = [&](auto& input, auto& weight) {
    at::Tensor y;
    run_foreign(unwound, [&] {
      y = chain(input, weight, 3, false);
      done.emplace_back("inside");
    });
    return y;
  };
  checkpointed(f, x, w).sum().backward();
  EXPECT_THAT(done, ElementsAre("inside", "inside"));
  EXPECT_THAT(unwound, IsEmpty());
  const Tensors got{take_gradient(x), take_gradient(w)};
  chain(x, w, 3, false).sum().backward();
  expect_equal(got, {take_gradient(x), take_gradient(w)});
}

TEST(ForeignFrame, AroundABackwardLetsRecomputationsInsideStop) {
  const at::Tensor w = leaf(1);
  Steps done;
  const Function f = [&](auto& x, auto& weight) {
    const at::Tensor hidden = at::linear(x, weight).exp();
    done.emplace_back("first");
    const at::Tensor y = at::linear(hidden, weight);
    done.emplace_back("second");
    return y;
  };
  const ForeignFrame frame;
  checkpointed(f, leaf(2), w).sum().backward();
  EXPECT_THAT(done, ElementsAre("first", "second", "first"));
}

}  // namespace
}  // namespace fsdp2::nn
