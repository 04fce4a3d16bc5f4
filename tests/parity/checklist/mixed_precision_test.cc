// Checklist, mixed precision: MXP.
#include <gtest/gtest.h>

#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

using Dtype = std::optional<at::ScalarType>;

Policy with_dtypes(Policy policy, Dtype param, Dtype reduce, Dtype output = std::nullopt) {
  policy.mixed_precision.param_dtype = param;
  policy.mixed_precision.reduce_dtype = reduce;
  policy.mixed_precision.output_dtype = output;
  return policy;
}

// fp32 master parameters, computed with in one dtype, with gradients that are averaged in another.
class MixedReference {
 public:
  MixedReference(int64_t width, at::ScalarType compute, at::ScalarType reduce)
      : master(seed(make_stack3(width))), compute_(make_stack3(width)), reduce_(reduce) {
    for (const at::Tensor& parameter : compute_->parameters()) {
      parameter.set_data(parameter.detach().to(compute));
    }
  }

  std::shared_ptr<Sequence> master;

  // Leaves the average of all ranks' gradients on the masters; returns the loss of `rank`.
  double backward(int world, int rank, const Loss& loss) const {
    const std::vector<at::Tensor> masters = master->parameters();
    const std::vector<at::Tensor> parameters = compute_->parameters();
    double own_loss = 0.0;
    std::vector<at::Tensor> sums(masters.size());
    for (int from = 0; from < world; ++from) {
      for (size_t i = 0; i < masters.size(); ++i) {
        parameters[i].detach().copy_(masters[i].detach());
      }
      const at::Tensor value = loss(*compute_, from);
      value.backward();
      own_loss = from == rank ? value.item<double>() : own_loss;
      for (size_t i = 0; i < masters.size(); ++i) {
        const at::Tensor grad = parameters[i].grad().to(reduce_);
        sums[i] = from == 0 ? grad.clone() : sums[i] + grad;
        parameters[i].mutable_grad() = at::Tensor();
      }
    }
    for (size_t i = 0; i < masters.size(); ++i) {
      masters[i].mutable_grad() = (sums[i] / world).to(at::kFloat);
    }
    return own_loss;
  }

 private:
  std::shared_ptr<Sequence> compute_;
  at::ScalarType reduce_;
};

struct MixedCase {
  Policy policy;
  at::ScalarType compute;  // also of the inputs
  at::ScalarType reduce;
  Tolerance losses;
  Tolerance values;
};

// Ten Adam steps of Stack3(16) on (4, 16); reductions run in the reduce dtype, shards and their
// gradients stay fp32.
void expect_mixed_parity(int ranks, const MixedCase& c) {
  run_ranks(ranks, [&](const WorldPtr& world) {
    const MixedReference reference(16, c.compute, c.reduce);
    const auto model = seed(make_stack3(16));
    const UnitPtr root = shard_items_and_root(model, flat_mesh(world), c.policy);
    int reductions = 0;
    for (const ModulePtr& item : model->items) {
      unit_of(*item).set_all_reduce_hook([&](const at::Tensor& flat) {
        ++reductions;
        EXPECT_EQ(flat.scalar_type(), c.reduce);
      });
    }
    PlainOptimizer sharded(trainable_shards(*root), Rule::kAdam, 1e-2);
    PlainOptimizer plain(trainable_parameters(*reference.master), Rule::kAdam, 1e-2);
    for (int step = 0; step < 10; ++step) {
      const Loss loss = [&](nn::Module& module, int rank) {
        return module(random_input({4, 16}, step, rank).to(c.compute)).sum();
      };
      const at::Tensor value = loss(*model, world->rank());
      value.backward();
      const double expected = reference.backward(ranks, world->rank(), loss);
      const std::string at_step = "step " + std::to_string(step);
      expect_close(value.item<double>(), expected, c.losses, "loss at " + at_step);
      for (const fsdp::ShardedParam* param : root->parameters()) {
        EXPECT_EQ(param->sharded().scalar_type(), at::kFloat);
        EXPECT_EQ(param->sharded().grad().scalar_type(), at::kFloat);
        EXPECT_EQ(param->unsharded().scalar_type(), c.compute);
      }
      expect_parity(*root, *reference.master, c.values, "before " + at_step);
      sharded.step();
      plain.step();
      expect_parity(*root, *reference.master, c.values, "after " + at_step);
      root->zero_grad();
      plain.zero_grad();
    }
    EXPECT_EQ(reductions, 10 * 3);
  });
}

TEST(ChecklistMxp, MXP1_ParametersAndReductionInOneDtype) {
  for (const Policy& policy : policies_true_false_two()) {
    expect_mixed_parity(2, {with_dtypes(policy, at::kBFloat16, std::nullopt), at::kBFloat16,
                            at::kBFloat16, kT16b, kT16b});
    expect_mixed_parity(
        2, {with_dtypes(policy, at::kHalf, std::nullopt), at::kHalf, at::kHalf, kT16h, kT16h});
  }
}

TEST(ChecklistMxp, MXP2_ParametersInBf16ReducedInFp32) {
  const Policy policy = with_dtypes(policy_true(), at::kBFloat16, at::kFloat);
  for (const int ranks : {2, 4}) {
    expect_mixed_parity(ranks, {policy, at::kBFloat16, at::kFloat, kT16b, kT32});
  }
}

TEST(ChecklistMxp, MXP2_LargestDimsReducedInFp32) {
  Policy policy = with_dtypes(policy_true(), at::kBFloat16, at::kFloat);
  policy.shard_dim = largest_dim;
  expect_mixed_parity(2, {policy, at::kBFloat16, at::kFloat, kT16b, kT32});
}

TEST(ChecklistMxp, MXP3_ParametersInFp32ReducedInBf16) {
  for (const bool by_largest_dim : {false, true}) {
    Policy policy = with_dtypes(policy_true(), std::nullopt, at::kBFloat16);
    if (by_largest_dim) {
      policy.shard_dim = largest_dim;
    }
    expect_mixed_parity(2, {policy, at::kFloat, at::kBFloat16, kT32, kT32});
  }
}

// A Linear 100 -> 100 that tells which dtype it received.
class Receiver : public nn::Module {
 public:
  explicit Receiver(bool casts) : nn::Module("Receiver"), casts_(casts) {
    linear = register_module("linear", std::make_shared<Linear>(100, 100));
  }
  std::shared_ptr<Linear> linear;
  at::ScalarType received = at::kLong;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor x = inputs[0].toTensor();
    received = x.scalar_type();
    return (*linear)(casts_ ? x.to(linear->weight.scalar_type()) : x);
  }

 private:
  bool casts_;
};

class TwoReceivers : public nn::Module {
 public:
  explicit TwoReceivers(bool casts) : nn::Module("TwoReceivers") {
    first = register_module("first", std::make_shared<Receiver>(casts));
    second = register_module("second", std::make_shared<Receiver>(casts));
  }
  std::shared_ptr<Receiver> first;
  std::shared_ptr<Receiver> second;
  at::ScalarType received = at::kLong;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor x = inputs[0].toTensor();
    received = x.scalar_type();
    return (*second)((*first)(x));
  }
};

TEST(ChecklistMxp, MXP4_InputsAreCastWhereAsked) {
  for (const bool casts_inputs : {true, false}) {
    run_ranks_by_both_schedules(2, [&](const WorldPtr& world, Schedule schedule) {
      const auto model = seed(std::make_shared<TwoReceivers>(/*casts=*/!casts_inputs));
      const MeshPtr mesh = flat_mesh(world);
      Policy half = with_dtypes(policy_unset(schedule), at::kHalf, std::nullopt);
      half.mixed_precision.cast_forward_inputs = casts_inputs;
      Policy plain = policy_unset(schedule);
      plain.mixed_precision.cast_forward_inputs = casts_inputs;
      fsdp::fully_shard(model->second, mesh, half);
      const UnitPtr root = fsdp::fully_shard(model, mesh, plain);
      (*model)(random_input({2, 100}, 0, world->rank())).sum().backward();
      EXPECT_EQ(model->received, at::kFloat);
      EXPECT_EQ(model->first->received, at::kFloat);
      EXPECT_EQ(model->second->received, casts_inputs ? at::kHalf : at::kFloat);
      for (const fsdp::ShardedParam* param : root->parameters()) {
        EXPECT_TRUE(param->sharded().grad().defined()) << param->name();
      }
    });
  }
}

TEST(ChecklistMxp, MXP5_AnOutputDtypeFeedsTheNextModule) {
  run_ranks_by_both_schedules(2, [](const WorldPtr& world, Schedule schedule) {
    const auto model = seed(std::make_shared<TwoReceivers>(/*casts=*/false));
    const MeshPtr mesh = flat_mesh(world);
    fsdp::fully_shard(model->first, mesh,
                      with_dtypes(policy_unset(schedule), at::kHalf, std::nullopt, at::kFloat));
    fsdp::fully_shard(model, mesh, policy_unset(schedule));
    (*model)(random_input({2, 100}, 0, world->rank())).sum().backward();
    EXPECT_EQ(model->received, at::kFloat);
    EXPECT_EQ(model->first->received, at::kHalf);
    EXPECT_EQ(model->second->received, at::kFloat);
  });
}

TEST(ChecklistMxp, MXP6_NormsBetweenLinearsInBf16) {
  const std::vector<std::function<ModulePtr()>> norms = {
      [] { return std::make_shared<LayerNorm>(32); },
      [] { return std::make_shared<BatchNorm>(32); }};
  for (const auto& norm : norms) {
    run_ranks_by_both_schedules(2, [&](const WorldPtr& world, Schedule schedule) {
      const auto model = seed(std::make_shared<Sequence>(std::vector<ModulePtr>{
          std::make_shared<Linear>(32, 32), norm(), std::make_shared<Linear>(32, 32)}));
      const UnitPtr root =
          shard_items_and_root(model, flat_mesh(world),
                               with_dtypes(policy_unset(schedule), at::kBFloat16, std::nullopt));
      const at::Tensor output = (*model)(random_input({4, 32}, 0, world->rank()));
      EXPECT_EQ(output.scalar_type(), at::kBFloat16);
      output.sum().backward();
      for (const fsdp::ShardedParam* param : root->parameters()) {
        EXPECT_TRUE(param->sharded().grad().defined()) << param->name();
      }
    });
  }
}

TEST(ChecklistMxp, MXP7_CastingTheShardsKeepsTheReduceDtype) {
  run_ranks_by_both_schedules(2, [](const WorldPtr& world, Schedule schedule) {
    const auto model = seed(std::make_shared<Sequence>(std::vector<ModulePtr>{
        std::make_shared<Linear>(32, 32), std::make_shared<Linear>(32, 32)}));
    for (const at::Tensor& parameter : model->parameters()) {
      parameter.set_data(parameter.detach().to(at::kBFloat16));
    }
    const UnitPtr root = shard_items_and_root(
        model, flat_mesh(world), with_dtypes(policy_unset(schedule), at::kBFloat16, at::kBFloat16));
    int reductions = 0;
    for (const ModulePtr& item : model->items) {
      unit_of(*item).set_all_reduce_hook([&](const at::Tensor& flat) {
        ++reductions;
        EXPECT_EQ(flat.scalar_type(), at::kBFloat16);
      });
    }
    root->cast_parameters(at::kFloat);
    (*model)(random_input({4, 32}, 0, world->rank())).sum().backward();
    EXPECT_EQ(reductions, 2);
    for (const fsdp::ShardedParam* param : root->parameters()) {
      EXPECT_EQ(param->sharded().scalar_type(), at::kFloat);
      EXPECT_EQ(param->sharded().grad().scalar_type(), at::kFloat);
    }
  });
}

}  // namespace
}  // namespace fsdp2::checklist
