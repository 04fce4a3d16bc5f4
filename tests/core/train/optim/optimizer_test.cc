// Parameter groups: shards trained by ours equal whole parameters trained by torch::optim.
#include "core/train/optim/optimizer.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/train/optim/adamw.h"
#include "core/train/optim/group_rules.h"
#include "core/train/optim/muon.h"
#include "core/train/optim/sgd.h"
#include "tests/core/base/file_fixture.h"
#include "tests/support/checklist_models.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

using checklist::make_linears;
using checklist::seed;

struct Pair {
  explicit Pair(const std::shared_ptr<World>& world)
      : model(seed(make_linears({4, 5, 3}))), reference(seed(make_linears({4, 5, 3}))) {
    root = fsdp::fully_shard(model, Mesh::for_fsdp(world, 0), {});
    root->parameters();
    for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*reference)) {
      const bool is_bias = parameter.tensor.dim() == 1;
      (is_bias ? biases : weights).push_back(parameter.tensor);
      (is_bias ? bias_names : weight_names).push_back(parameter.names[0]);
    }
  }

  void expect_equal_after(int steps, Optimizer& ours, torch::optim::Optimizer& theirs) {
    for (int step = 0; step < steps; ++step) {
      const at::Tensor input = at::linspace(-1.0, 1.0 + step, 12).view({3, 4});
      (*model)(input).square().sum().backward();
      (*reference)(input).square().sum().backward();
      ours.step();
      theirs.step();
      ours.zero_grad();
      theirs.zero_grad();
    }
    std::map<std::string, at::Tensor> expected;
    for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*reference)) {
      expected.emplace(parameter.names[0], parameter.tensor.detach());
    }
    for (const fsdp::ShardedParam* param : root->parameters()) {
      EXPECT_TRUE(
          at::allclose(fsdp::full_parameter(*root, *param), expected.at(param->name()), 1e-5, 1e-6))
          << param->name();
    }
  }

  std::shared_ptr<nn::Module> model;
  std::shared_ptr<nn::Module> reference;
  std::shared_ptr<fsdp::Unit> root;
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> biases;
  std::vector<std::string> weight_names;
  std::vector<std::string> bias_names;
};

// Operators that this thread calls, except those that another one calls.
class OperatorsCalled {
 public:
  OperatorsCalled()
      : callback_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::FUNCTION}))) {
    count_ = depth_ = 0;
  }
  ~OperatorsCalled() { at::removeCallback(callback_); }
  OperatorsCalled(const OperatorsCalled&) = delete;
  OperatorsCalled& operator=(const OperatorsCalled&) = delete;

  int count() const { return count_; }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& /*function*/) {
    count_ += depth_++ == 0 ? 1 : 0;
    return nullptr;
  }
  static void end(const at::RecordFunction& /*function*/, at::ObserverContext* /*context*/) {
    --depth_;
  }

  inline static thread_local int count_ = 0;
  inline static thread_local int depth_ = 0;
  const at::CallbackHandle callback_;
};

template <typename Options>
std::vector<torch::optim::OptimizerParamGroup> groups_of(const Pair& pair, const Options& weights,
                                                         const Options& biases) {
  return {torch::optim::OptimizerParamGroup(pair.weights, std::make_unique<Options>(weights)),
          torch::optim::OptimizerParamGroup(pair.biases, std::make_unique<Options>(biases))};
}

TEST(ParameterGroups, OfAdamWHaveOptionsOfTheirOwn) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Pair pair(world);
    const auto ours = make_adamw(pair.root, {0.05, 0.9, 0.95, 1e-8, 0.3});
    add_group(*ours, pair.bias_names, AdamWOptions{0.1, 0.8, 0.99, 1e-6, 0.0});
    using Options = torch::optim::AdamWOptions;
    torch::optim::AdamW theirs(
        groups_of(pair, Options(0.05).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.3),
                  Options(0.1).betas({0.8, 0.99}).eps(1e-6).weight_decay(0.0)));
    pair.expect_equal_after(4, *ours, theirs);
  });
}

TEST(Adam, IsAdamWWithTheDecayInTheGradient) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Pair pair(world);
    const auto ours = make_adamw(pair.root, {0.05, 0.9, 0.95, 1e-8, 0.3, false});
    add_group(*ours, pair.bias_names, AdamWOptions{0.1, 0.8, 0.99, 1e-6, 0.2, false});
    using Options = torch::optim::AdamOptions;
    torch::optim::Adam theirs(
        groups_of(pair, Options(0.05).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.3),
                  Options(0.1).betas({0.8, 0.99}).eps(1e-6).weight_decay(0.2)));
    pair.expect_equal_after(4, *ours, theirs);
  });
}

TEST(ParameterGroups, OfSgdHaveOptionsOfTheirOwn) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Pair pair(world);
    const auto ours = make_sgd(pair.root, {0.01, 0.9, 0.1});
    add_group(*ours, pair.bias_names, SgdOptions{0.02, 0.0, 0.0});
    using Options = torch::optim::SGDOptions;
    torch::optim::SGD theirs(
        groups_of(pair, Options(0.01).momentum(0.9).weight_decay(0.1), Options(0.02)),
        Options(0.01));
    pair.expect_equal_after(4, *ours, theirs);
  });
}

// Three steps of gradients that are halved, beside the formula in double, rounded after each step.
void expect_sgd_in(at::ScalarType dtype, const SgdOptions& options, double ulp) {
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    const auto model = seed(make_linears({8, 17}));
    model->to(dtype);
    const auto root = fsdp::fully_shard(model, Mesh::for_fsdp(world, 0), {});
    const auto ours = make_sgd(root, options);
    for (const fsdp::ShardedParam* param : root->parameters()) {
      at::Tensor expected = param->sharded().detach().to(at::kDouble);
      at::Tensor momentum = at::zeros_like(expected);
      for (int step = 0; step < 3; ++step) {
        root->zero_grad();
        const at::Tensor gradient =
            at::linspace(-2.0, 3.0 + step, expected.numel()).view_as(expected).to(dtype);
        const at::Tensor decayed = gradient.to(at::kDouble) / 2.0 + options.weight_decay * expected;
        param->sharded().mutable_grad() = gradient;
        ours->step(2.0);
        momentum = (options.momentum * momentum + decayed).to(dtype).to(at::kDouble);
        expected -=
            options.lr * (options.nesterov ? decayed + options.momentum * momentum : momentum);
        expected = expected.to(dtype).to(at::kDouble);
        EXPECT_TRUE(at::allclose(param->sharded().detach().to(at::kDouble), expected, ulp, ulp))
            << param->name() << " after step " << step;
      }
    }
  });
}

// The step itself is no error: the next loss is.
TEST(Optimizer, RatesBeyondFp32MakeValuesThatAreNotFinite) {
  const double huge = 1e300;
  const std::vector<std::function<std::unique_ptr<Optimizer>(std::shared_ptr<fsdp::Unit>)>> makers =
      {[&](auto root) { return make_sgd(std::move(root), {huge, 0.9, huge, true}); },
       [&](auto root) {
         AdamWOptions options;
         options.lr = options.weight_decay = huge;
         return make_adamw(std::move(root), options);
       },
       [&](auto root) {
         MuonOptions options;
         options.lr = options.weight_decay = huge;
         return make_muon(std::move(root), options);
       }};
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (size_t i = 0; i < makers.size(); ++i) {
        const auto model = seed(make_linears({8, 17}));
        model->to(dtype);
        const auto root = fsdp::fully_shard(model, Mesh::for_fsdp(world, 0), {});
        const auto optimizer = makers[i](root);
        for (const fsdp::ShardedParam* param : root->parameters()) {
          param->sharded().mutable_grad() = at::ones_like(param->sharded());
        }
        EXPECT_NO_THROW(optimizer->step()) << i << " " << dtype;
        EXPECT_FALSE(root->parameters().front()->sharded().isfinite().any().item<bool>())
            << i << " " << dtype;
      }
    }
  });
}

TEST(Sgd, UpdatesParametersIn16BitsAsItDoesInFp32) {
  for (const bool nesterov : {false, true}) {
    const SgdOptions options{0.1, 0.9, 0.1, nesterov};
    expect_sgd_in(at::kFloat, options, 1e-6);
    expect_sgd_in(at::kHalf, options, 1.0 / 512);
    expect_sgd_in(at::kBFloat16, options, 1.0 / 64);
  }
  expect_sgd_in(at::kBFloat16, {0.1, 0.0, 0.1}, 1.0 / 64);
}

TEST(ParameterGroups, ByRuleTrainAsThoseOfPyTorch) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Pair pair(world);
    const auto ours = make_adamw(pair.root, {0.05, 0.9, 0.95, 1e-8, 0.3});
    exempt_from_decay(*ours, {/*norms=*/true, /*biases=*/true});
    scale_lr(*ours, {"*.bias"}, 2.0);
    EXPECT_EQ(ours->group_count(), 2U);
    using Options = torch::optim::AdamWOptions;
    torch::optim::AdamW theirs(groups_of(pair, Options(0.05).betas({0.9, 0.95}).weight_decay(0.3),
                                         Options(0.1).betas({0.9, 0.95}).weight_decay(0.0)));
    pair.expect_equal_after(4, *ours, theirs);
  });
}

// By the groups of the moment: SGD's momentum is a state only where it is not 0.
TEST(OptimizerState, TakesWhatWasSaidBeforeThereWasAny) {
  const auto make = [](const std::shared_ptr<fsdp::Unit>& root, int form) {
    AdamWOptions halved;
    halved.state_dtype = at::kBFloat16;
    switch (form) {
      case 0:
        return make_adamw(root, {});
      case 1:
        return make_adamw(root, halved);
      case 2:
        return make_sgd(root, {1e-3, 0.9});
      case 3:
        return make_sgd(root, {});
      default:
        return make_muon(root, {});
    }
  };
  for (const int ranks : {1, 3}) {
    run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      for (int form = 0; form < 5; ++form) {
        Pair pair(world);
        const auto optimizer = make(pair.root, form);
        if (form == 3) {
          add_group(*optimizer, pair.bias_names, SgdOptions{1e-3, 0.5});
        }
        const size_t expected = optimizer->full_state_bytes();
        EXPECT_EQ(optimizer->state_bytes(), 0U);
        (*pair.model)(at::ones({3, 4})).square().sum().backward();
        optimizer->step();
        SCOPED_TRACE(testing::Message() << "form " << form << " on " << ranks);
        EXPECT_EQ(optimizer->state_bytes(), expected);
        EXPECT_EQ(optimizer->full_state_bytes(), expected);
      }
    });
  }
}

std::vector<std::unique_ptr<Optimizer>> one_of_each(const std::shared_ptr<fsdp::Unit>& root) {
  std::vector<std::unique_ptr<Optimizer>> all;
  all.push_back(make_adamw(root, {}));
  all.push_back(make_sgd(root, {0.01, 0.9}));
  all.push_back(make_muon(root, {}));
  return all;
}

TEST(Optimizer, RefusesAnUpdateOfCastParametersBeforeAnythingMoves) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Pair pair(world);
    const auto optimizers = one_of_each(pair.root);
    (*pair.model)(at::ones({3, 4})).square().sum().backward();
    for (const auto& optimizer : optimizers) {
      optimizer->step();
    }
    pair.root->cast_parameters(at::kDouble);
    (*pair.model)(at::ones({3, 4}, at::kDouble)).square().sum().backward();
    const at::Tensor before = pair.root->parameters()[0]->sharded().detach().clone();
    for (const auto& optimizer : optimizers) {
      const Error error = error_of([&] { optimizer->step(); });
      EXPECT_EQ(error.code(), Code::kWrongState);
      EXPECT_NE(error.message().find("make a new optimizer"), std::string::npos);
    }
    EXPECT_TRUE(before.equal(pair.root->parameters()[0]->sharded()));
    make_adamw(pair.root, {})->step();
    EXPECT_FALSE(before.equal(pair.root->parameters()[0]->sharded()));
  });
}

TEST(ParameterGroups, ByRuleFindNormsByTheirClass) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<checklist::Sequence>(std::vector<checklist::ModulePtr>{
        std::make_shared<checklist::LayerNorm>(4), std::make_shared<checklist::Linear>(4, 4)});
    const auto root = fsdp::fully_shard(model, Mesh::for_fsdp(world, 0), {});
    root->parameters();
    const auto optimizer = make_sgd(root, {0.1, 0.0, 0.5});
    exempt_from_decay(*optimizer, {/*norms=*/true, /*biases=*/false});
    EXPECT_EQ(optimizer->group_size(1), 2U);
    exempt_from_decay(*optimizer, {/*norms=*/false, /*biases=*/true});
    EXPECT_EQ(optimizer->group_size(0), 1U);  // the weight of the linear
    for (size_t i = 0; i < optimizer->params().size(); ++i) {
      EXPECT_EQ(optimizer->group_of(i) == 0, optimizer->params()[i]->name() == "1.weight");
    }
  });
}

TEST(ParameterGroups, ByRuleRefusePatternsThatDoNotFitAndChangeNothing) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    Pair pair(world);
    const auto optimizer = make_adamw(pair.root, {0.1});
    EXPECT_EQ(error_of([&] { scale_lr(*optimizer, {"*"}, 2.0); }).code(), Code::kInvalidArgument);
    EXPECT_EQ(error_of([&] { scale_lr(*optimizer, {"bias"}, 2.0); }).code(), Code::kNotFound);
    EXPECT_EQ(error_of([&] { scale_lr(*optimizer, {"*.bias"}, -2.0); }).code(),
              Code::kInvalidArgument);
    EXPECT_EQ(optimizer->group_count(), 1U);
    optimizer->set_lr(0.0);  // a ratio needs no rate
    scale_lr(*optimizer, {"*.bias"}, 2.0);
    optimizer->set_lr(0.1);
    EXPECT_EQ(std::get<double>(optimizer->hyper_parameters(1)[0].value), 0.2);
  });
}

TEST(ParameterGroups, FollowTheOptimizersRateInARatio) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    Pair pair(world);
    const auto optimizer = make_adamw(pair.root, {0.1});
    add_group(*optimizer, pair.bias_names, AdamWOptions{0.2});
    optimizer->set_lr(0.01);
    EXPECT_EQ(optimizer->group_count(), 2U);
    EXPECT_EQ(std::get<double>(optimizer->hyper_parameters(0)[0].value), 0.01);
    EXPECT_EQ(std::get<double>(optimizer->hyper_parameters(1)[0].value), 0.02);
  });
}

TEST(ParameterGroups, FollowInTheRatioThatTheirRateWasSetTo) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    Pair pair(world);
    const auto optimizer = make_sgd(pair.root, {0.1});
    add_group(*optimizer, pair.bias_names, SgdOptions{0.1});
    optimizer->set_group_lr(1, 0.4);
    EXPECT_EQ(std::get<double>(optimizer->hyper_parameters(0)[0].value), 0.1);
    EXPECT_EQ(std::get<double>(optimizer->hyper_parameters(1)[0].value), 0.4);
    optimizer->set_group_lr(0, 0.2);
    EXPECT_EQ(optimizer->lr(), 0.2);
    EXPECT_EQ(std::get<double>(optimizer->hyper_parameters(1)[0].value), 0.8);
    EXPECT_EQ(error_of([&] { optimizer->set_group_lr(1, -1.0); }).code(), Code::kInvalidArgument);
    optimizer->set_lr(0.0);
    EXPECT_EQ(error_of([&] { optimizer->set_group_lr(1, 1.0); }).code(), Code::kWrongState);
  });
}

TEST(ParameterGroups, RefuseNamesThatDoNotFitAndChangeNothing) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    Pair pair(world);
    const auto optimizer = make_adamw(pair.root, {0.1});
    const auto refused = [&](const std::vector<std::string>& names, Code code) {
      const Error error = error_of([&] { add_group(*optimizer, names, AdamWOptions{}); });
      EXPECT_EQ(error.code(), code) << error.message();
      return error.message();
    };
    EXPECT_EQ(refused({}, Code::kInvalidArgument), "parameter group: expected names, found none");
    EXPECT_EQ(refused({pair.bias_names[0], "no.such"}, Code::kNotFound),
              "parameter group: the model has no parameter no.such");
    std::vector<std::string> all = pair.bias_names;
    all.insert(all.end(), pair.weight_names.begin(), pair.weight_names.end());
    refused(all, Code::kInvalidArgument);
    EXPECT_EQ(optimizer->group_count(), 1U);
    EXPECT_EQ(error_of([&] { add_group(*optimizer, pair.bias_names, SgdOptions{}); }).code(),
              Code::kInvalidArgument);
    add_group(*optimizer, pair.bias_names, AdamWOptions{});
    EXPECT_EQ(refused({pair.bias_names[0]}, Code::kInvalidArgument),
              "parameter group: " + pair.bias_names[0] + " is in group 1 already");
    optimizer->set_lr(0.0);
    refused({pair.weight_names[0]}, Code::kWrongState);
  });
}

// Each is a launch on a device, which costs the host more than all the arithmetic.
TEST(AdamW, AStepTakesAsManyOperatorsForManyParametersAsForFew) {
  const auto operators_of_a_step = [](const std::vector<int64_t>& sizes) {
    int count = 0;
    run_ranks(1, [&](const std::shared_ptr<World>& world) {
      const auto model = seed(make_linears(sizes));
      const auto root = fsdp::fully_shard(model, Mesh::for_fsdp(world, 0), {});
      const auto optimizer = make_adamw(root, {0.1});
      for (int step = 0; step < 2; ++step) {  // the first one makes the states
        (*model)(at::ones({3, sizes.front()})).square().sum().backward();
        const OperatorsCalled called;
        optimizer->step();
        count = called.count();
      }
    });
    return count;
  };
  EXPECT_GT(operators_of_a_step({4, 3}), 0);
  EXPECT_EQ(operators_of_a_step({4, 3}), operators_of_a_step({4, 5, 5, 5, 3}));
}

}  // namespace
}  // namespace fsdp2::train
