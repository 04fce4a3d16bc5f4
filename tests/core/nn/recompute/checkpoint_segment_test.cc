#include "core/nn/recompute/checkpoint_segment.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/layers/head_loss.h"
#include "core/nn/layers/layers.h"
#include "core/nn/layers/rotary_embedding.h"
#include "tests/core/nn/closeness.h"
#include "tests/core/nn/recompute/segments.h"

namespace fsdp2::nn {
namespace {

at::Tensor plain(const Function& f, const at::Tensor& x, const at::Tensor& w) { return f(x, w); }

// Output, gradients of x and w, and the next random number.
template <typename Run>
Tensors train(const Run& run, at::IntArrayRef shape) {
  at::manual_seed(11);
  const at::Tensor x = random_leaf(shape, 1);
  const at::Tensor w = random_leaf({kSize, kSize}, 2);
  const at::Tensor hidden = x * 1;  // so that in-place operations may be tried on it
  const at::Tensor y = run(hidden, w);
  (y * at::arange(1, y.numel() + 1, at::kFloat).view(y.sizes())).sum().backward();
  return {y.detach(), x.grad(), w.grad(), at::rand({1})};
}

struct Case {
  std::string name;
  Function f;
  std::vector<int64_t> shape = {4, kSize};
};

const at::Tensor& angles(bool sine) {
  static const auto both = RotaryEmbedding(kSize, 1e4).cos_sin(4, at::ones({1}));
  return sine ? both.second : both.first;
}

std::vector<Case> cases() {
  const auto square = [](const at::Tensor& x, const at::Tensor& w) { return at::linear(x, w); };
  return {
      {"Products", [=](auto& x, auto& w) { return square(at::relu(square(x, w)), w.t()); }},
      {"SavedOutputs", [](auto& x, auto& w) { return (x.exp() + x.tanh().mm(w)).softmax(-1); }},
      {"Dropout",
       [=](auto& x, auto& w) {
         return square(at::dropout(square(at::dropout(x, 0.3, true), w), 0.5, true), w);
       }},
      {"InPlace",
       [=](auto& x, auto& w) {
         at::Tensor y = square(x, w);
         y.mul_(2).add_(x);
         y.narrow(1, 0, 2).mul_(3);
         y.tanh_();
         return y * y;
       }},
      {"Views",
       [=](auto& x, auto& w) {
         const auto parts = square(x, w).chunk(2, 1);
         return at::cat({parts[1] * parts[0], parts[0].t().contiguous().t()}, 1);
       }},
      {"IntoItsOwnInputsView",
       [=](auto& x, auto& w) {
         return square(x.view({2, -1}).clone().exp_().view({-1, kSize}), w);
       }},
      {"Attention",
       [=](auto& x, auto& w) {
         const at::Tensor q = square(x, w).transpose(1, 2);
         return at::scaled_dot_product_attention(q, x.transpose(1, 2), q, {}, 0.0, true);
       },
       {1, 4, 2, kSize}},
      {"AttentionWithDropout",
       [=](auto& x, auto& w) {
         const at::Tensor q = square(x, w);
         return at::scaled_dot_product_attention(q, x, q, {}, 0.5, false);
       },
       {1, 2, 4, kSize}},
      {"RmsNorm", [](auto& x, auto& w) { return rms_norm(x, w.select(0, 0), 1e-6) * x; }},
      {"SiluMultiply",
       [=](auto& x, auto& w) { return gated(square(x, w), x, Activation::kSilu).exp(); }},
      {"Rotation",
       [=](auto& x, auto& w) {
         return square(rotate(square(x, w), angles(false), angles(true)), w);
       },
       {1, 4, 2, kSize}},
      {"LinearProduct",
       [](auto& x, auto& w) {
         return linear_product(at::relu(linear_product(x, w, w.select(0, 1))), w, {});
       }},
      {"HeadLoss",
       [](auto& x, auto& w) {
         return head_loss(x.tanh(), w, at::arange(4), {/*ignore_index=*/2, /*chunk_rows=*/2, {}});
       }},
  };
}

class EachOperation : public ::testing::TestWithParam<Case> {};

TEST_P(EachOperation, HasTheGradientsOfThePlainRunToTheBit) {
  const Case& c = GetParam();
  const auto once = [&](auto& x, auto& w) { return plain(c.f, x, w); };
  int runs = 0;
  const auto again = [&](auto& x, auto& w) { return checkpointed(c.f, x, w, &runs); };
  expect_equal(train(again, c.shape), train(once, c.shape));
  EXPECT_EQ(runs, 2);
}

TEST_P(EachOperation, HasThemInASegmentInASegment) {
  const Case& c = GetParam();
  const auto twice = [&](auto& x, auto& w) {
    const at::Tensor y = c.f(x, w);
    return y.sizes() == x.sizes() ? c.f(y, w) : y.exp();
  };
  const auto nested = [&](auto& x, auto& w) {
    const Function inner_twice = [&](auto& u, auto& v) {
      const at::Tensor y = checkpointed(c.f, u, v);
      return y.sizes() == u.sizes() ? checkpointed(c.f, y, v) : y.exp();
    };
    return checkpointed(inner_twice, x, w);
  };
  expect_equal(train(nested, c.shape), train(twice, c.shape));
}

INSTANTIATE_TEST_SUITE_P(Of, EachOperation, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Segment, StopsOnceTheLastSavedTensorIsThere) {
  const at::Tensor w = leaf(1);
  std::vector<std::string> done;
  const Function f = [&](auto& x, auto& weight) {
    const at::Tensor hidden = at::linear(x, weight).exp();
    done.emplace_back("first");
    const at::Tensor y = at::linear(hidden, weight);  // saves its inputs before it computes
    done.emplace_back("second");
    return y;
  };
  checkpointed(f, leaf(2), w).sum().backward();
  EXPECT_THAT(done, ::testing::ElementsAre("first", "second", "first"));
}

TEST(Segment, RunsOnlyAsFarAsBackwardCanAskFor) {
  const at::Tensor w = leaf(1);
  const at::Tensor x = leaf(2);
  int late = 0;
  const auto body = [&](const Values& inputs) -> c10::IValue {
    const at::Tensor first = inputs[0].toTensor().exp();
    at::Tensor second = first.mm(w);
    ++late;
    return std::vector<at::Tensor>{first, second.tanh()};
  };
  auto outputs = run_as_segment("two outputs", body, {x}).toTensorVector();
  outputs[1] = at::Tensor();  // frees its part of the graph
  outputs[0].sum().backward();
  EXPECT_EQ(late, 1);
  EXPECT_TRUE(at::equal(x.grad(), x.detach().exp()));
}

TEST(Segment, WithoutGradModeIsJustCalled) {
  const at::NoGradGuard no_grad;
  int runs = 0;
  EXPECT_FALSE(checkpointed(tanh_layer, leaf(1), leaf(2), &runs).requires_grad());
  EXPECT_EQ(runs, 1);
}

TEST(Segment, NeedsNoInputWithGradient) {
  const at::Tensor w = leaf(1);
  const at::Tensor x = leaf(2).detach();
  checkpointed(tanh_layer, x, w).sum().backward();
  const at::Tensor got = take_gradient(w);
  tanh_layer(x, w).sum().backward();
  EXPECT_TRUE(at::equal(got, take_gradient(w)));
}

TEST(Segment, SharesAWeightWithTheOutside) {
  const at::Tensor w = leaf(1);
  const at::Tensor x = leaf(2);
  const auto gradients = [&](bool segments) {
    chain(chain(tanh_layer(x, w), w, 3, segments).mm(w), w, 2, segments).sum().backward();
    return Tensors{take_gradient(x), take_gradient(w)};
  };
  expect_equal(gradients(true), gradients(false));
}

TEST(Segment, TakesAndGivesNestedValues) {
  const at::Tensor x = leaf(1);
  const at::Tensor w = leaf(2);
  const auto body = [](const Values& inputs) -> c10::IValue {
    const auto tuple = inputs[0].toTupleRef().elements();
    const at::Tensor& a = tuple[0].toTensor();
    const at::Tensor& b = tuple[1].toTensorList().get(1);
    EXPECT_FALSE(tuple[1].toTensorList().get(0).requires_grad());
    c10::Dict<std::string, at::Tensor> dict;
    dict.insert("product", a.mm(b));
    dict.insert("exp", a.exp());
    return c10::ivalue::Tuple::create(dict, inputs[1].toInt() + 1, c10::IValue());
  };
  const auto gradients = [&](bool segment) {
    const Values inputs{
        c10::ivalue::Tuple::create(x * 1, std::vector<at::Tensor>{at::ones({1}), w}), 3,
        c10::IValue()};
    const auto output = (segment ? run_as_segment("nested", body, inputs) : body(inputs));
    const auto& parts = output.toTupleRef().elements();
    EXPECT_EQ(parts[1].toInt(), 4);
    EXPECT_TRUE(parts[2].isNone());
    const auto dict = parts[0].toGenericDict();
    (dict.at("product").toTensor() * dict.at("exp").toTensor()).sum().backward();
    return Tensors{take_gradient(x), take_gradient(w)};
  };
  expect_equal(gradients(true), gradients(false));
}

TEST(Segment, MayHaveSeveralForwardsInFlight) {
  const at::Tensor w = leaf(1);
  const at::Tensor x = leaf(2);
  const auto gradients = [&](bool segments, bool first_first) {
    const at::Tensor a = chain(x, w, 2, segments).sum();
    const at::Tensor b = chain(x * 2, w, 2, segments).sum();
    (first_first ? a : b).backward();
    (first_first ? b : a).backward();
    return Tensors{take_gradient(x), take_gradient(w)};
  };
  expect_equal(gradients(true, true), gradients(false, true));
  expect_equal(gradients(true, false), gradients(false, false));
}

TEST(Segment, RunsAgainForEachBackwardOfAKeptGraph) {
  const at::Tensor w = leaf(1);
  const at::Tensor x = leaf(2);
  const auto gradients = [&](bool segments, int* runs) {
    const at::Tensor y = chain(x, w, 2, segments, runs).sum();
    y.backward({}, /*retain_graph=*/true);
    y.backward({}, /*retain_graph=*/true);
    y.backward();
    return Tensors{take_gradient(x), take_gradient(w)};
  };
  int runs = 0;
  expect_equal(gradients(true, &runs), gradients(false, nullptr));
  EXPECT_EQ(runs, 2 * 4);
}

TEST(Segment, HasSecondDerivatives) {
  const auto derivatives = [](bool segments) {
    const at::Tensor w = leaf(1);
    const at::Tensor x = leaf(2);
    const at::Tensor y = chain(x, w, 2, segments).sum();
    const at::Tensor first =
        torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    first.square().sum().backward();
    return Tensors{first.detach(), x.grad(), w.grad()};
  };
  const Tensors with = derivatives(true);
  const Tensors without = derivatives(false);
  for (size_t i = 0; i < with.size(); ++i) {
    EXPECT_LE(max_difference(with[i], without[i]), 1e-6) << i;
  }
}

// y = 2 x, asking twice in one backward for what it saved.
struct AsksTwice : torch::autograd::Function<AsksTwice> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor first = context->get_saved_variables()[0];
    EXPECT_TRUE(at::equal(first, context->get_saved_variables()[0]));
    return {gradients[0] * 2};
  }
};

TEST(Segment, RunsAgainForATensorThatIsAskedForTwice) {
  int runs = 0;
  const at::Tensor x = leaf(2);
  checkpointed([](auto& u, auto& /*w*/) { return AsksTwice::apply(u.exp()).tanh(); }, x, leaf(1),
               &runs)
      .sum()
      .backward();
  EXPECT_EQ(runs, 3);
}

TEST(Segment, DrawsTheSameFromAnOwnGenerator) {
  auto generator = at::detail::createCPUGenerator(5);
  const at::Tensor x = leaf(1);
  Tensors masks;
  const auto body = [&](const Values& inputs) -> c10::IValue {
    masks.push_back(at::empty({kSize, kSize}).bernoulli_(0.5, generator));
    return (inputs[0].toTensor() * masks.back()).exp();
  };
  const at::Tensor y = run_as_segment("masked", body, {x}, {generator}).toTensor();
  const at::Tensor state = generator.get_state();
  const at::Tensor next = at::rand({4}, generator);
  generator.set_state(state);
  y.sum().backward();
  ASSERT_EQ(masks.size(), 2);
  EXPECT_TRUE(at::equal(masks[0], masks[1]));
  EXPECT_TRUE(at::equal(at::rand({4}, generator), next)) << "the generator is not where it was";
}

TEST(Segment, DrawsTheSameFromGeneratorsThatItIsToldOf) {
  auto generator = at::detail::createCPUGenerator(5);
  const at::Tensor x = leaf(1);
  Tensors masks;
  const auto masked = [&](const at::Tensor& u, const at::Tensor& /*w*/) {
    about_to_draw_from(generator);
    masks.push_back(at::empty({kSize, kSize}).bernoulli_(0.5, generator));
    return (u * masks.back()).exp();
  };
  const auto twice = [&](const at::Tensor& u, const at::Tensor& w) {
    return checkpointed(masked, masked(u, w), w);
  };
  const at::Tensor y = checkpointed(twice, x, leaf(1));
  const at::Tensor state = generator.get_state();
  y.sum().backward();
  ASSERT_EQ(masks.size(), 4);  // the second run of all ends where it has the inner one's input
  EXPECT_FALSE(at::equal(masks[0], masks[1]));
  EXPECT_TRUE(at::equal(masks[0], masks[2]));
  EXPECT_TRUE(at::equal(masks[1], masks[3]));
  EXPECT_TRUE(at::equal(generator.get_state(), state)) << "the generator is not where it was";
}

TEST(Segment, RunsAgainUnderTheAutocastItHad) {
  const auto gradients = [](bool segments) {
    const at::Tensor w = leaf(1);
    const at::Tensor x = leaf(2);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor y = chain(x, w, 2, segments);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    y.to(at::kFloat).sum().backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
    return Tensors{x.grad(), w.grad()};
  };
  expect_equal(gradients(true), gradients(false));
}

TEST(Segment, KnowsThatItRunsAgain) {
  std::vector<bool> seen;
  const Function f = [&](auto& x, auto& w) {
    seen.push_back(is_recomputing());
    return tanh_layer(x, w);
  };
  checkpointed(f, leaf(1), leaf(2)).sum().backward();
  EXPECT_THAT(seen, ::testing::ElementsAre(false, true));
  EXPECT_FALSE(is_recomputing());
}

TEST(Segment, WorksInManyThreadsAtOnce) {
  const auto gradients = [](bool segments) {
    const at::Tensor w = leaf(1);
    const at::Tensor x = leaf(2);
    chain(x, w, 4, segments).sum().backward();
    return Tensors{x.grad(), w.grad()};
  };
  const Tensors expected = gradients(false);
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      at::set_num_threads(1);
      for (int step = 0; step < 10; ++step) {
        expect_equal(gradients(true), expected);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace fsdp2::nn
