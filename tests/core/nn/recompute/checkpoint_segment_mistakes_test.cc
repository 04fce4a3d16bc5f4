// What a segment that does not do the same twice, or fails, ends in.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "core/base/error.h"
#include "core/nn/recompute/checkpoint_segment.h"
#include "tests/core/nn/closeness.h"
#include "tests/core/nn/recompute/segments.h"

namespace fsdp2::nn {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kWrongState);
    return error.message();
  } catch (const std::exception& error) {
    return std::string("another exception: ") + error.what();
  }
  return "no error";
}

TEST(SegmentMistakes, FewerTensorsTheSecondTime) {
  int runs = 0;
  const Function f = [&](auto& x, auto& w) { return ++runs == 1 ? tanh_layer(x, w) : x; };
  const at::Tensor y = checkpointed(f, leaf(1), leaf(2), nullptr, "layers.3");
  EXPECT_THAT(error_of([&] { y.sum().backward(); }),
              HasSubstr("recomputing layers.3 in backward: its forward saved 3 tensors, the second "
                        "time only 0"));
}

TEST(SegmentMistakes, AnotherShapeOrDtypeTheSecondTime) {
  for (const auto& change : std::vector<std::function<at::Tensor(const at::Tensor&)>>{
           [](auto& x) { return x.narrow(0, 0, 4); }, [](auto& x) { return x.to(at::kDouble); }}) {
    int runs = 0;
    const Function f = [&](auto& x, auto& /*w*/) { return (++runs == 1 ? x : change(x)).exp(); };
    const at::Tensor y = checkpointed(f, leaf(1), leaf(2), nullptr, "layers.3");
    EXPECT_THAT(error_of([&] { y.sum().backward(); }),
                HasSubstr("recomputing layers.3 in backward: tensor 0 that its forward saved was "
                          "Float [8, 8], the second time it is"));
  }
}

TEST(SegmentMistakes, ASavedTensorChangedInPlaceByTheSegment) {
  const Function f = [](auto& x, auto& w) {
    const at::Tensor saved = x.exp();
    const at::Tensor y = saved * 1;
    saved.mul_(2);
    return y.mm(w).tanh();
  };
  const at::Tensor y = checkpointed(f, leaf(1), leaf(2), nullptr, "layers.3");
  EXPECT_THAT(error_of([&] { y.sum().backward(); }),
              HasSubstr("layers.3: a tensor of Float [8, 8] that backward needs was changed in "
                        "place"));
}

TEST(SegmentMistakes, AnInputChangedInPlaceAfterwards) {
  const at::Tensor hidden = leaf(1) * 1;
  const at::Tensor y = checkpointed(tanh_layer, hidden, leaf(2));
  hidden.detach().mul_(2);
  EXPECT_THAT(error_of([&] { y.sum().backward(); }), HasSubstr("inplace operation"));
}

TEST(SegmentMistakes, AnExceptionOfTheSecondRunComesOutOfBackwardAsItIs) {
  const at::Tensor x = leaf(1);
  const at::Tensor w = leaf(2);
  bool fails = false;
  const Function f = [&](auto& u, auto& v) {
    const at::Tensor hidden = tanh_layer(u, v);
    if (fails) {
      throw std::out_of_range("broken");
    }
    return tanh_layer(hidden, v);
  };
  const at::Tensor y = checkpointed(f, x, w).sum();
  fails = true;
  EXPECT_THROW(y.backward({}, /*retain_graph=*/true), std::out_of_range);
  EXPECT_FALSE(is_recomputing());
  fails = false;
  x.mutable_grad() = at::Tensor();
  w.mutable_grad() = at::Tensor();
  y.backward();  // nothing is left of the failed attempt
  const Tensors got{take_gradient(x), take_gradient(w)};
  chain(x, w, 2, false).sum().backward();
  expect_equal(got, {take_gradient(x), take_gradient(w)});
}

TEST(SegmentMistakes, AnExceptionAfterTheLastSavedTensorOfARunToTheEnd) {
  bool fails = false;
  const auto body = [&](const Values& inputs) -> c10::IValue {
    const at::Tensor y = inputs[0].toTensor().exp();
    if (fails) {
      throw std::out_of_range("late");
    }
    return y;
  };
  const at::Tensor y = run_as_segment("a segment", body, {leaf(1)}, {}, false).toTensor();
  fails = true;
  EXPECT_THROW(y.sum().backward(), std::out_of_range);
}

TEST(SegmentMistakes, MoreTensorsTheSecondTimeOfARunToTheEnd) {
  bool again = false;
  const auto body = [&](const Values& inputs) -> c10::IValue {
    const at::Tensor y = inputs[0].toTensor().exp();
    return again ? y.exp() : y;
  };
  const at::Tensor y = run_as_segment("a segment", body, {leaf(1)}, {}, false).toTensor();
  again = true;
  EXPECT_THAT(error_of([&] { y.sum().backward(); }),
              HasSubstr("saved 1 tensors, the second time more"));
}

TEST(SegmentMistakes, CatchingTheStopDoesNoHarm) {
  const at::Tensor x = leaf(1);
  const at::Tensor w = leaf(2);
  const Function f = [](auto& u, auto& v) {
    try {
      return chain(u, v, 3, false);
    } catch (...) {
      tanh_layer(u, v);  // goes on
      throw std::runtime_error("an error of its own");
    }
  };
  checkpointed(f, x, w).sum().backward();
  const Tensors got{take_gradient(x), take_gradient(w)};
  chain(x, w, 3, false).sum().backward();
  expect_equal(got, {take_gradient(x), take_gradient(w)});
}

}  // namespace
}  // namespace fsdp2::nn
