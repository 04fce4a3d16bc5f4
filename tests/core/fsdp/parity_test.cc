// A sharded module equals the unsharded one, step by step.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "core/fsdp/fully_shard.h"
#include "core/train/optim/adamw.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

constexpr int kSteps = 10;
constexpr double kLearningRate = 1e-2;

at::Tensor batch_of(int step, int rank, int64_t width) {
  const at::Generator generator = at::detail::createCPUGenerator(1000 + 100 * step + rank);
  return at::randn({3, width}, generator);
}

// Mean over ranks of sum(output^2)/10.
at::Tensor loss_of(nn::Module& model, const at::Tensor& x) {
  return model(x).square().sum() / 10.0;
}

// The unsharded model with AdamW, written out (Loshchilov and Hutter 2019, algorithm 2).
class Reference {
 public:
  explicit Reference(const TinyStackOptions& options) : model_(options) {
    for (const nn::NamedParameter& parameter : nn::named_unique_parameters(model_)) {
      parameters_.push_back(parameter);
      exp_avg_.push_back(at::zeros_like(parameter.tensor.detach()));
      exp_avg_sq_.push_back(at::zeros_like(parameter.tensor.detach()));
    }
  }

  double step(int step, int world, int64_t width) {
    double total = 0.0;
    for (int rank = 0; rank < world; ++rank) {
      const at::Tensor loss = loss_of(model_, batch_of(step, rank, width)) / world;
      loss.backward();
      total += loss.item<double>();
    }
    update(step + 1);
    return total;
  }

  const std::vector<nn::NamedParameter>& parameters() const { return parameters_; }

 private:
  void update(int t) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor& parameter = parameters_[i].tensor;
      if (!parameter.grad().defined()) {
        continue;
      }
      const at::Tensor grad = parameter.grad();
      parameter.mul_(1.0 - kLearningRate * 0.01);
      exp_avg_[i].mul_(0.9).add_(grad, 0.1);
      exp_avg_sq_[i].mul_(0.999).addcmul_(grad, grad, 0.001);
      const at::Tensor denominator =
          (exp_avg_sq_[i] / (1.0 - std::pow(0.999, t))).sqrt().add_(1e-8);
      parameter.addcdiv_(exp_avg_[i], denominator, -kLearningRate / (1.0 - std::pow(0.9, t)));
      parameter.mutable_grad() = at::Tensor();
    }
  }

  TinyStack model_;
  std::vector<nn::NamedParameter> parameters_;
  std::vector<at::Tensor> exp_avg_;
  std::vector<at::Tensor> exp_avg_sq_;
};

void expect_equal_parameters(Unit& root, const Reference& reference, int step) {
  ASSERT_EQ(root.parameters().size(), reference.parameters().size());
  for (size_t i = 0; i < reference.parameters().size(); ++i) {
    const ShardedParam& param = *root.parameters()[i];
    const nn::NamedParameter& expected = reference.parameters()[i];
    EXPECT_EQ(param.names(), expected.names);
    const at::Tensor full = full_parameter(root, param);
    EXPECT_TRUE(at::allclose(full, expected.tensor, 1.3e-6, 1e-5))
        << "step " << step << " parameter " << param.name() << " differs by "
        << (full - expected.tensor).abs().max().item<float>();
  }
}

void expect_parity(const std::shared_ptr<World>& world, int64_t fsdp_size,
                   const TinyStackOptions& options, const Policy& policy) {
  auto model = std::make_shared<TinyStack>(options);
  const auto mesh = Mesh::for_fsdp(world, fsdp_size);
  const auto root = fully_shard_by_kind(model, mesh, policy, {"TinyBlock"});
  const auto optimizer = train::make_adamw(root, {kLearningRate, 0.9, 0.999, 1e-8, 0.01});
  Reference reference(options);
  expect_equal_parameters(*root, reference, -1);
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor x = batch_of(step, world->rank(), options.width);
    const at::Tensor loss = loss_of(*model, x);
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
    const at::Tensor mean = loss.detach().clone();
    world->control().all_reduce(mean, ReduceOp::kAverage).wait();
    const double expected = reference.step(step, world->size(), options.width);
    EXPECT_NEAR(mean.item<double>(), expected, 1e-5 + 1.3e-6 * expected);
    expect_equal_parameters(*root, reference, step);
  }
}

class Parity : public ::testing::TestWithParam<int> {};

TEST_P(Parity, UnevenShapesEqualTheUnshardedModuleAfterEveryStep) {
  run_ranks(GetParam(),
            [](const std::shared_ptr<World>& world) { expect_parity(world, 0, {5, 7, 3}, {}); });
}

TEST_P(Parity, EvenShapesOnTheDirectPath) {
  Policy policy;
  policy.comm_path = CommPath::kDirect;
  run_ranks(GetParam(), [&](const std::shared_ptr<World>& world) {
    expect_parity(world, 0, {8, 16, 3}, policy);
  });
}

TEST_P(Parity, UnevenShapesOnTheDirectPath) {
  Policy policy;
  policy.comm_path = CommPath::kDirect;
  run_ranks(GetParam(), [&](const std::shared_ptr<World>& world) {
    expect_parity(world, 0, {5, 7, 2}, policy);
  });
}

TEST_P(Parity, TiedAndFrozenParameters) {
  TinyStackOptions options{6, 6, 3};
  options.tied = true;
  options.frozen_bias = true;
  run_ranks(GetParam(),
            [&](const std::shared_ptr<World>& world) { expect_parity(world, 0, options, {}); });
}

TEST_P(Parity, AFrozenUnitBetweenTrainableOnes) {
  TinyStackOptions options{6, 7, 3};
  options.frozen_block = true;
  run_ranks(GetParam(),
            [&](const std::shared_ptr<World>& world) { expect_parity(world, 0, options, {}); });
}

TEST_P(Parity, EveryReshardPolicyAndPrefetchDepth) {
  for (const ReshardAfterForward reshard :
       {ReshardAfterForward::kAlways, ReshardAfterForward::kNever}) {
    for (const int prefetch : {0, 2, 9}) {
      Policy policy;
      policy.reshard_after_forward = reshard;
      policy.prefetch = prefetch;
      run_ranks(GetParam(), [&](const std::shared_ptr<World>& world) {
        expect_parity(world, 0, {5, 7, 3}, policy);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, Parity, ::testing::Values(1, 2, 3, 4, 8));

TEST(HybridParity, TwoReplicasOfTwoShards) {
  TinyStackOptions options{6, 6, 3};
  options.tied = true;
  run_ranks(4, [&](const std::shared_ptr<World>& world) { expect_parity(world, 2, options, {}); });
}

TEST(HybridParity, ReplicasOnly) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    auto model = std::make_shared<TinyStack>(TinyStackOptions{5, 7, 3});
    const auto mesh = Mesh::create(world, {3, 1}, {"ddp", "fsdp"});
    const auto root = fully_shard_by_kind(model, mesh, {}, {"TinyBlock"});
    const auto optimizer = train::make_adamw(root, {kLearningRate, 0.9, 0.999, 1e-8, 0.01});
    Reference reference({5, 7, 3});
    for (int step = 0; step < kSteps; ++step) {
      loss_of(*model, batch_of(step, world->rank(), 5)).backward();
      optimizer->step();
      optimizer->zero_grad();
      reference.step(step, 3, 5);
      expect_equal_parameters(*root, reference, step);
    }
    EXPECT_EQ(root->scheduler().stats().all_gathers, 0);
    EXPECT_EQ(root->scheduler().stats().all_reduces, 4 * kSteps);
  });
}

// Gradients after one backward, by name.
std::map<std::string, at::Tensor> gradients_of(const std::shared_ptr<World>& world,
                                               const Policy& policy) {
  auto model = std::make_shared<TinyStack>(TinyStackOptions{9, 11, 2});
  const auto root = fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), policy, {"TinyBlock"});
  loss_of(*model, batch_of(0, world->rank(), 9)).backward();
  std::map<std::string, at::Tensor> gradients;
  for (const ShardedParam* param : root->parameters()) {
    gradients[param->name()] = full_gradient(*root, *param);
  }
  return gradients;
}

TEST(CommPaths, DirectAndPackedGiveTheSameBits) {
  for (const int size : {2, 3, 4}) {
    run_ranks(size, [](const std::shared_ptr<World>& world) {
      Policy direct;
      direct.comm_path = CommPath::kDirect;
      Policy packed;
      packed.comm_path = CommPath::kPacked;
      const auto by_direct = gradients_of(world, direct);
      const auto by_packed = gradients_of(world, packed);
      ASSERT_EQ(by_direct.size(), 10U);
      for (const auto& [name, gradient] : by_direct) {
        EXPECT_TRUE(gradient.equal(by_packed.at(name))) << name;
      }
    });
  }
}

TEST(MixedPrecision, ComputesInTheParamDtypeAndReducesInTheReduceDtype) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Policy policy;
    policy.mixed_precision.param_dtype = at::kBFloat16;
    policy.mixed_precision.reduce_dtype = at::kFloat;
    policy.mixed_precision.output_dtype = at::kFloat;
    auto model = std::make_shared<TinyStack>(TinyStackOptions{8, 16, 2});
    const auto root = fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), policy, {"TinyBlock"});
    // The unsharded copy in bf16 gives bf16 gradients; each rank's is summed in fp32.
    TinyStack reference({8, 16, 2});
    for (const auto& parameter : reference.parameters()) {
      parameter.set_data(parameter.detach().to(at::kBFloat16));
    }
    std::vector<at::Tensor> expected;
    for (int rank = 0; rank < 2; ++rank) {
      const at::Tensor x = batch_of(0, rank, 8).to(at::kBFloat16);
      (reference(x).to(at::kFloat).square().sum() / 10.0).backward();
      size_t i = 0;
      for (const auto& parameter : nn::named_unique_parameters(reference)) {
        at::Tensor& grad = const_cast<at::Tensor&>(parameter.tensor).mutable_grad();
        const at::Tensor half = grad.to(at::kFloat) / 2.0;
        expected.size() <= i ? expected.push_back(half) : (void)expected[i].add_(half);
        grad = at::Tensor();
        ++i;
      }
    }
    const at::Tensor output = (*model)(batch_of(0, world->rank(), 8));
    EXPECT_EQ(output.scalar_type(), at::kFloat);
    (output.square().sum() / 10.0).backward();
    for (size_t i = 0; i < expected.size(); ++i) {
      const ShardedParam& param = *root->parameters()[i];
      EXPECT_EQ(param.unsharded().scalar_type(), at::kBFloat16);
      const at::Tensor gradient = full_gradient(*root, param);
      EXPECT_EQ(gradient.scalar_type(), at::kFloat);
      EXPECT_TRUE(at::allclose(gradient, expected[i], 1e-6, 1e-6)) << param.name();
    }
  });
}

TEST(Accumulation, WithoutCommunicationEqualsWithIt) {
  for (const bool mixed : {false, true}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      Policy policy;
      if (mixed) {
        policy.mixed_precision.param_dtype = at::kBFloat16;
        policy.mixed_precision.reduce_dtype = at::kFloat;
      }
      std::map<std::string, at::Tensor> by_every;
      for (const bool every : {true, false}) {
        auto model = std::make_shared<TinyStack>(TinyStackOptions{5, 7, 2});
        const auto root =
            fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), policy, {"TinyBlock"});
        for (int micro = 0; micro < 3; ++micro) {
          root->set_requires_gradient_sync(every || micro == 2);
          loss_of(*model, batch_of(micro, world->rank(), 5)).to(at::kFloat).backward();
        }
        EXPECT_EQ(root->scheduler().stats().reduce_scatters, every ? 9 : 3);
        EXPECT_EQ(root->scheduler().stats().unsharded_bytes, 0);
        for (const ShardedParam* param : root->parameters()) {
          const at::Tensor gradient = full_gradient(*root, *param);
          if (every) {
            by_every[param->name()] = gradient;
          } else {
            EXPECT_TRUE(at::allclose(gradient, by_every.at(param->name()), 1e-5, 1e-5))
                << param->name();
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace fsdp2::fsdp
