// What segments hold, in units of one activation of a layer.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/nn/recompute/checkpoint_segment.h"
#include "tests/core/nn/closeness.h"
#include "tests/core/nn/live_bytes.h"
#include "tests/core/nn/recompute/segments.h"

namespace fsdp2::nn {
namespace {

constexpr int64_t kRows = 1 << 12;
constexpr double kActivation = kRows * kSize * 4;
constexpr int kLayers = 6;

struct Footprint {
  double after_forward;
  double peak;
  double left;
};

// linear and three elementwise operations that save their outputs: 4 activations a layer.
at::Tensor four_activations(const at::Tensor& x, const at::Tensor& w) {
  return at::linear(x, w).tanh().sigmoid().tanh();
}

Footprint footprint(const std::function<at::Tensor(at::Tensor x, const at::Tensor& w)>& model,
                    const std::function<void(const at::Tensor& loss)>& backward) {
  const at::Tensor w = leaf(1);
  const at::Tensor x = random_leaf({kRows, kSize}, 2);
  w.mutable_grad() = at::zeros_like(w);
  x.mutable_grad() = at::zeros_like(x);
  const int64_t before = live_bytes();
  const PeakBytes peak;
  Footprint result{};
  {
    const at::Tensor loss = model(x, w).sum();
    result.after_forward = static_cast<double>(live_bytes() - before) / kActivation;
    backward(loss);
  }
  result.peak = static_cast<double>(peak.get() - before) / kActivation;
  result.left = static_cast<double>(live_bytes() - before) / kActivation;
  return result;
}

at::Tensor layers(at::Tensor x, const at::Tensor& w, bool segments) {
  for (int i = 0; i < kLayers; ++i) {
    x = segments ? checkpointed(four_activations, x, w) : four_activations(x, w);
  }
  return x;
}

void run_backward(const at::Tensor& loss) { loss.backward(); }

// Small tensors beside the activations: generator states, scalars, the layers' weight gradients.
constexpr double kSmall = 0.3;

TEST(SegmentMemory, IsTheInputsAfterForwardAndOneLayerMoreInBackward) {
  const auto with = footprint([](auto x, auto& w) { return layers(x, w, true); }, run_backward);
  const auto without = footprint([](auto x, auto& w) { return layers(x, w, false); }, run_backward);
  EXPECT_NEAR(without.after_forward, 3 * kLayers, kSmall);
  EXPECT_NEAR(with.after_forward, kLayers - 1, kSmall);  // the outputs of all layers but the last
  // The second run's graph and record, and the gradients of a node's output and input.
  EXPECT_LE(with.peak, kLayers - 1 + 3 + 2 + kSmall);
  EXPECT_GE(without.peak, 3 * kLayers);
  EXPECT_NEAR(with.left, 0, kSmall / 10);
}

TEST(SegmentMemory, IsNoMoreWithAKeptGraph) {
  const auto kept = footprint([](auto x, auto& w) { return layers(x, w, true); },
                              [](auto& loss) {
                                loss.backward({}, /*retain_graph=*/true);
                                loss.backward({}, /*retain_graph=*/true);
                              });
  EXPECT_LE(kept.peak, kLayers - 1 + 3 + 2 + kSmall);
  EXPECT_NEAR(kept.left, 0, kSmall / 10);
}

TEST(SegmentMemory, OfSegmentsInASegmentIsTheOuterInputAfterForward) {
  const Function all = [](auto& x, auto& w) { return layers(x, w, true); };
  const auto nested =
      footprint([&](auto x, auto& w) { return checkpointed(all, x, w); }, run_backward);
  EXPECT_NEAR(nested.after_forward, 0, kSmall);
  EXPECT_LE(nested.peak, kLayers + 3 + 2 + kSmall);
  EXPECT_NEAR(nested.left, 0, kSmall / 10);
}

TEST(SegmentMemory, IsFreedWithAGraphThatNeverRuns) {
  const auto unused =
      footprint([](auto x, auto& w) { return layers(x, w, true); }, [](auto& /*loss*/) {});
  EXPECT_NEAR(unused.left, 0, kSmall / 10);
}

TEST(SegmentMemory, IsFreedAfterAFailedBackward) {
  for (const bool second_run_fails : {true, false}) {
    const auto failed = footprint(
        [&](auto x, auto& w) {
          int runs = 0;
          const Function f = [runs, second_run_fails](auto& u, auto& v) mutable {
            if (++runs == 2 && second_run_fails) {
              throw std::out_of_range("broken");
            }
            return four_activations(u, v);
          };
          at::Tensor y = checkpointed(f, x, w);
          if (!second_run_fails) {
            x = y * 1;
            x.register_hook([](const at::Tensor& gradient) -> at::Tensor {
              static_cast<void>(gradient);
              throw std::out_of_range("broken");
            });
            y = four_activations(x, w);
          }
          return y;
        },
        [](auto& loss) { EXPECT_THROW(loss.backward(), std::out_of_range); });
    EXPECT_NEAR(failed.left, 0, kSmall / 10) << second_run_fails;
  }
}

TEST(SegmentMemory, IsFreedWhereASegmentChangesItsInputInPlace) {
  const Function f = [](auto& x, auto& w) {
    const at::Tensor y = at::linear(x, w);
    x.tanh_();
    return x * y;
  };
  const auto changed = footprint([&](auto x, auto& w) { return checkpointed(f, x * 1, w); },
                                 [](auto& loss) { EXPECT_THROW(loss.backward(), std::exception); });
  EXPECT_NEAR(changed.left, 0, kSmall / 10);
}

}  // namespace
}  // namespace fsdp2::nn
