// Outputs that no operator of the module has made: what a unit below it returned, or its own input.
// A module's backward then begins with the gradient that others' begin with, too.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/nn/module.h"
#include "tests/core/fsdp/ordered_steps.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

constexpr int64_t kFeatures = 4;

using Route = std::vector<int64_t>;

// A block and a parameter of its own, which does not make the output.
class Wrapped : public nn::Module {
 public:
  Wrapped() : nn::Module("Wrapped") {
    shift_ = register_parameter("shift", at::zeros({kFeatures}));
    block_ = register_module("block", std::make_shared<TinyBlock>(kFeatures, 6));
  }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    return (*block_)(nn::Values{inputs[0].toTensor() + shift_});
  }

 private:
  at::Tensor shift_;
  std::shared_ptr<TinyBlock> block_;
};

// A factor that is a unit.
class Gate : public nn::Module {
 public:
  Gate() : nn::Module("Gate") { factor_ = register_parameter("factor", at::zeros({kFeatures})); }

 protected:
  c10::IValue forward(nn::Values inputs) override { return inputs[0].toTensor() * factor_; }

 private:
  at::Tensor factor_;
};

struct RouterOptions {
  bool owns_parameters = false;
  bool wraps = false;                       // each block in a unit that passes its output on
  std::shared_ptr<nn::Module> beside = {};  // makes a second loss, of the output
  std::function<c10::IValue(const at::Tensor&)> returns = [](const at::Tensor& x) { return x; };
};

// Runs the blocks that its second input names, and returns what the last one did.
class Router : public nn::Module {
 public:
  explicit Router(const RouterOptions& options) : nn::Module("Router"), options_(options) {
    if (options_.owns_parameters) {
      shift_ = register_parameter("shift", at::zeros({kFeatures}));
    }
    for (int i = 0; i < 4; ++i) {
      std::shared_ptr<nn::Module> block = std::make_shared<TinyBlock>(kFeatures, 6);
      if (options_.wraps) {
        block = std::make_shared<Wrapped>();
      }
      blocks_.push_back(register_module("block" + std::to_string(i), block));
    }
    if (options_.beside) {
      register_module("beside", options_.beside);
    }
  }

  at::Tensor loss_beside;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    at::Tensor x = inputs[0].toTensor();
    x = shift_.defined() ? x + shift_ : x;
    for (const int64_t block : inputs[1].toIntVector()) {
      x = (*blocks_[static_cast<size_t>(block)])(nn::Values{x}).toTensor();
    }
    if (options_.beside) {
      loss_beside = (*options_.beside)(nn::Values{x.detach()}).toTensor().sum();
    }
    return options_.returns(x);
  }

 private:
  RouterOptions options_;
  at::Tensor shift_;
  std::vector<std::shared_ptr<nn::Module>> blocks_;
};

at::Tensor two_rows() { return at::ones({2, kFeatures}); }

at::Tensor routed(Router& router, const Route& route) {
  return router(nn::Values{two_rows(), route}).toTensor();
}

void fill(nn::Module& module) {
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::detail::createCPUGenerator(5);
  for (at::Tensor& parameter : module.parameters()) {
    parameter.normal_(0.0, 0.4, generator);
  }
}

const std::vector<std::string> kUnits = {"TinyBlock", "Wrapped", "Gate", "Pair"};

void expect_gradients_of(nn::Module& reference, Unit& root) {
  for (const ShardedParam* param : root.parameters()) {
    if (!param->requires_grad()) {
      continue;
    }
    const at::Tensor expected = reference.named_parameters()[param->name()].grad();
    const at::Tensor gradient = full_gradient(root, *param);
    ASSERT_TRUE(gradient.defined()) << param->name();
    EXPECT_TRUE(at::allclose(gradient, expected, 1e-5, 1e-4)) << param->name();
  }
}

// backward(module, rank): a forward and a backward. The gradients are those that one unsharded
// module has from all ranks' together.
template <typename Module, typename Make, typename Backward>
void expect_gradients_of_one_module(int ranks, const Policy& policy, const Make& make,
                                    const Backward& backward) {
  run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
    const std::shared_ptr<Module> model = make();
    fill(*model);
    const auto root = fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), policy, kUnits);
    for (int step = 0; step < 3; ++step) {
      root->zero_grad();
      backward(*model, world->rank());
    }
    EXPECT_EQ(root->scheduler().stats().unsharded_bytes, 0);
    const std::shared_ptr<Module> reference = make();
    fill(*reference);
    for (int rank = 0; rank < ranks; ++rank) {
      backward(*reference, rank);
    }
    for (at::Tensor& parameter : reference->parameters()) {
      if (parameter.requires_grad()) {
        parameter.mutable_grad().div_(ranks);
      }
    }
    expect_gradients_of(*reference, *root);
  });
}

template <typename Backward>
void expect_gradients_of_one_router(int ranks, const Policy& policy, const RouterOptions& options,
                                    const Backward& backward) {
  const auto make = [&options] {
    RouterOptions own = options;
    own.beside = options.beside ? std::make_shared<Gate>() : nullptr;
    return std::make_shared<Router>(own);
  };
  expect_gradients_of_one_module<Router>(ranks, policy, make, backward);
}

// By rank; together they use every block.
const std::vector<Route> kRoutes = {{0, 2}, {1}, {3}};

const Route& route_of(int rank, int ranks) {
  static const std::vector<Route> of_two = {{0, 2}, {1, 3}};
  return (ranks == 2 ? of_two : kRoutes)[static_cast<size_t>(rank)];
}

TEST(PassedOn, RootsMayReturnTheOutputsOfDifferentUnits) {
  for (const int ranks : {2, 3}) {
    for (const bool owns_parameters : {false, true}) {
      for (const bool wraps : {false, true}) {
        for (const bool one_communicator : {false, true}) {
          Policy policy;
          policy.one_communicator = one_communicator;
          RouterOptions options;
          options.owns_parameters = owns_parameters;
          options.wraps = wraps;
          expect_gradients_of_one_router(ranks, policy, options, [&](Router& router, int rank) {
            routed(router, route_of(rank, ranks)).square().sum().backward();
          });
        }
      }
    }
  }
}

// The engine then begins with the node that both hooks are of.
TEST(PassedOn, BackwardMayBeginAtTheOutputItself) {
  for (const int ranks : {2, 3}) {
    expect_gradients_of_one_router(ranks, {}, {}, [&](Router& router, int rank) {
      routed(router, route_of(rank, ranks)).backward(two_rows());
    });
  }
}

TEST(PassedOn, BackwardMayGoTwiceThroughOneGraph) {
  expect_gradients_of_one_router(2, {}, {}, [](Router& router, int rank) {
    const at::Tensor loss = routed(router, route_of(rank, 2)).square().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
}

TEST(PassedOn, AnOutputMayBeThereTwice) {
  RouterOptions options;
  options.returns = [](const at::Tensor& x) { return c10::ivalue::Tuple::create({x, x}); };
  expect_gradients_of_one_router(2, {}, options, [](Router& router, int rank) {
    const c10::IValue both = router(nn::Values{two_rows(), route_of(rank, 2)});
    const auto& outputs = both.toTupleRef().elements();
    EXPECT_TRUE(outputs[0].toTensor().is_same(outputs[1].toTensor()));
    (outputs[0].toTensor() * outputs[1].toTensor()).sum().backward();
  });
}

TEST(PassedOn, AnOutputMayBeAViewOfAUnits) {
  RouterOptions options;
  options.returns = [](const at::Tensor& x) { return x.view({-1}); };
  expect_gradients_of_one_router(2, {}, options, [](Router& router, int rank) {
    routed(router, route_of(rank, 2)).square().sum().backward();
  });
}

// The gradients of such a loss come before that of the output.
TEST(PassedOn, ALossBesideTheOutputMayComeFirst) {
  RouterOptions options;
  options.beside = std::make_shared<Gate>();
  expect_gradients_of_one_router(2, {}, options, [](Router& router, int rank) {
    const at::Tensor output = routed(router, route_of(rank, 2));
    (output.square().sum() + router.loss_beside).backward();
  });
}

TEST(PassedOn, AForwardMayReturnWhatTheOneBeforeItReturned) {
  const std::vector<Route> routes[2] = {{{0, 1, 2, 3}, {}}, {{1}, {3}}};
  for (const bool swapped : {false, true}) {
    expect_gradients_of_one_router(2, {}, {}, [&](Router& router, int rank) {
      const auto& mine = routes[swapped ? 1 - rank : rank];
      const at::Tensor first = routed(router, mine[0]);
      router(nn::Values{first, mine[1]}).toTensor().square().sum().backward();
    });
  }
}

// What a unit returns beside what its parameters make.
enum class Beside { kItsInput, kMadeWithoutParameters };

struct PairOptions {
  Beside beside = Beside::kItsInput;
  bool has_frozen = false;
};

class Pair : public nn::Module {
 public:
  explicit Pair(const PairOptions& options) : nn::Module("Pair"), beside_(options.beside) {
    linear_ = register_module("linear", std::make_shared<TinyLinear>(kFeatures, kFeatures));
    linear_->bias.set_requires_grad(!options.has_frozen);
  }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor x = inputs[0].toTensor();
    const at::Tensor beside = beside_ == Beside::kItsInput ? x : x * 2.0;
    return c10::ivalue::Tuple::create({(*linear_)(beside).sigmoid(), beside});
  }

 private:
  Beside beside_;
  std::shared_ptr<TinyLinear> linear_;
};

// Runs the pairs that its second input names.
class PairRouter : public nn::Module {
 public:
  explicit PairRouter(const PairOptions& options) : nn::Module("PairRouter") {
    first_ = register_module("first", std::make_shared<TinyBlock>(kFeatures, 6));
    for (int i = 0; i < 4; ++i) {
      pairs_.push_back(
          register_module("pair" + std::to_string(i), std::make_shared<Pair>(options)));
    }
  }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    at::Tensor x = (*first_)(nn::Values{inputs[0]}).toTensor();
    for (const int64_t pair : inputs[1].toIntVector()) {
      const c10::IValue both = (*pairs_[static_cast<size_t>(pair)])(nn::Values{x});
      const auto& outputs = both.toTupleRef().elements();
      x = outputs[0].toTensor() * outputs[1].toTensor();
    }
    return x;
  }

 private:
  std::shared_ptr<TinyBlock> first_;
  std::vector<std::shared_ptr<Pair>> pairs_;
};

const std::vector<PairOptions> kPairs = {{Beside::kItsInput, false},
                                         {Beside::kItsInput, true},
                                         {Beside::kMadeWithoutParameters, false},
                                         {Beside::kMadeWithoutParameters, true}};

TEST(PassedOn, NoUnitIsGatheredAgainForAnOutputItsParametersHaveNotMade) {
  for (const Schedule schedule : {Schedule::kAgreed, Schedule::kOnUse}) {
    for (const PairOptions& options : kPairs) {
      run_ranks(2, [&](const std::shared_ptr<World>& world) {
        Policy policy;
        policy.schedule = schedule;
        const auto model = std::make_shared<PairRouter>(options);
        const auto root = fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), policy, kUnits);
        (*model)(nn::Values{two_rows(), Route{0, 1, 2, 3}}).toTensor().sum().backward();
        EXPECT_EQ(root->scheduler().stats().all_gathers, 2 * 5);
      });
    }
  }
}

TEST(PassedOn, RanksMayUseDifferentUnitsThatReturnSuchOutputs) {
  for (const int ranks : {2, 3}) {
    for (const PairOptions& options : kPairs) {
      const auto make = [&options] { return std::make_shared<PairRouter>(options); };
      expect_gradients_of_one_module<PairRouter>(
          ranks, {}, make, [&](PairRouter& router, int rank) {
            const Route& route = route_of(rank, ranks);
            router(nn::Values{two_rows(), route}).toTensor().square().sum().backward();
          });
    }
  }
}

TEST(StepOrder, AGradientThatComesAfterAllOfAUnitsGathersNothing) {
  Steps steps({"", "a", "b"});
  steps.forward({1, 2});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads, kSomeGrads});
  steps.enter_backward(0);
  EXPECT_EQ(steps.enter_backward(2), "wait b, gather a");
  EXPECT_EQ(steps.gradients_final(2), "reduce b");  // a frozen one may still be read
  EXPECT_FALSE(steps.order.is_read_out(2));
  EXPECT_EQ(steps.enter_backward(1), "free b, wait a");
  EXPECT_EQ(steps.gradients_final(1), "free a, finish b, reduce a");
  EXPECT_TRUE(steps.order.is_read_out(1));
  EXPECT_EQ(steps.enter_backward(1), "");
}

TEST(StepOrder, ARootWithoutParametersGoesThroughForwardsThatUsedNoUnit) {
  Steps steps({"a", "b"}, {Schedule::kAgreed, 0});
  for (const bool is_used : {false, true, false}) {
    steps.begin_forward();
    if (is_used) {
      steps.enter(0);
      steps.leave(0);
    }
    steps.end_forward();
    steps.order.expect_root_backward();
  }
  steps.order.begin_backward(true, {kAllGrads, kNoGrads});
  EXPECT_EQ(steps.text(steps.order.enter_root_backward(3)), "");
  EXPECT_EQ(steps.text(steps.order.enter_root_backward(2)), "gather b, gather a, free b, free a");
  EXPECT_EQ(steps.enter_backward(0), "gather b, gather a, wait a");
  EXPECT_EQ(steps.gradients_final(0), "free a");  // others may gather before they reduce
  EXPECT_EQ(steps.text(steps.order.enter_root_backward(1)), "free b");
  EXPECT_EQ(steps.end_backward(),
            "gather b, gather a, free b, free a, reduce b, finish b, reduce a");
}

}  // namespace
}  // namespace fsdp2::fsdp
