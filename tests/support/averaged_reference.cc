#include "tests/support/averaged_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace fsdp2::checklist {

namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kAdamEps = 1e-8;
constexpr double kWeightDecay = 1e-2;  // of AdamW

std::string at_step(const char* when, int step) { return when + (" step " + std::to_string(step)); }

void forget_gradients(const std::vector<at::Tensor>& leaves, bool fills_with_zero) {
  for (const at::Tensor& leaf : leaves) {
    if (fills_with_zero && leaf.grad().defined()) {
      leaf.grad().zero_();
    } else {
      leaf.mutable_grad() = at::Tensor();
    }
  }
}

bool expect_slice(const fsdp::ShardedParam& param, const at::Tensor& local, const at::Tensor& full,
                  Tolerance tolerance, const std::string& what) {
  const std::string text = what + " of " + param.name();
  EXPECT_EQ(local.defined(), full.defined()) << text << " is there";
  if (!local.defined() || !full.defined()) {
    return local.defined() == full.defined();
  }
  return expect_close(local, slice_of(param, full), tolerance, text);
}

}  // namespace

bool expect_close(const at::Tensor& actual, const at::Tensor& expected, Tolerance tolerance,
                  const std::string& what) {
  if (!actual.defined() || !expected.defined() || actual.sizes() != expected.sizes()) {
    ADD_FAILURE() << what << ": undefined, or of another shape";
    return false;
  }
  const at::Tensor a = actual.detach().to(at::kDouble);
  const at::Tensor b = expected.detach().to(at::kDouble);
  const bool close = at::allclose(a, b, tolerance.relative, tolerance.absolute);
  EXPECT_TRUE(close) << what << " differs by " << (a - b).abs().max().item<double>();
  return close;
}

bool expect_close(double actual, double expected, Tolerance tolerance, const std::string& what) {
  const bool close =
      std::abs(actual - expected) <= tolerance.absolute + tolerance.relative * std::abs(expected);
  EXPECT_TRUE(close) << what << ": " << actual << ", expected " << expected;
  return close;
}

bool expect_parity(fsdp::Unit& root, const nn::Module& reference, Tolerance tolerance,
                   const std::string& what) {
  const std::vector<nn::NamedParameter> expected = nn::named_unique_parameters(reference);
  bool equal = root.parameters().size() == expected.size();
  EXPECT_TRUE(equal) << what << ": " << root.parameters().size() << " parameters";
  for (size_t i = 0; equal && i < expected.size(); ++i) {
    const fsdp::ShardedParam& param = *root.parameters()[i];
    EXPECT_EQ(param.names(), expected[i].names) << what;
    equal = param.names() == expected[i].names &&
            expect_slice(param, param.sharded(), expected[i].tensor, tolerance, what) &&
            expect_slice(param, param.sharded().grad(), expected[i].tensor.grad(), tolerance,
                         what + ", gradient");
  }
  return equal;
}

at::Tensor slice_of(const fsdp::ShardedParam& param, const at::Tensor& full) {
  const fsdp::ShardLayout& layout = param.layout();
  return full.detach().narrow(layout.dim, layout.start, layout.length);
}

fsdp::ShardedParam& find_param(fsdp::Unit& root, const std::string& name) {
  for (fsdp::ShardedParam* param : root.parameters()) {
    if (std::count(param->names().begin(), param->names().end(), name) > 0) {
      return *param;
    }
  }
  fail(Code::kNotFound, "no parameter {}", name);
}

at::Tensor find_parameter(const nn::Module& module, const std::string& name) {
  const auto parameters = module.named_parameters();
  const at::Tensor* found = parameters.find(name);
  FSDP2_CHECK(found != nullptr, Code::kNotFound, "no parameter {}", name);
  return *found;
}

PlainOptimizer::PlainOptimizer(std::vector<at::Tensor> leaves, Rule rule, double lr)
    : leaves_(std::move(leaves)), rule_(rule), lr_(lr), state_(leaves_.size()) {}

void PlainOptimizer::step() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const at::Tensor values = leaves_[i].detach();
    const at::Tensor grad = leaves_[i].grad();
    if (!grad.defined()) {
      continue;
    }
    if (rule_ == Rule::kSgd) {
      values.add_(grad, -lr_);
      continue;
    }
    State& state = state_[i];
    if (state.step++ == 0) {
      state.exp_avg = at::zeros_like(values);
      state.exp_avg_sq = at::zeros_like(values);
    }
    if (rule_ == Rule::kAdamW) {
      values.mul_(1.0 - lr_ * kWeightDecay);
    }
    const auto t = static_cast<double>(state.step);
    state.exp_avg.lerp_(grad, 1.0 - kBeta1);
    state.exp_avg_sq.mul_(kBeta2).addcmul_(grad, grad, 1.0 - kBeta2);
    const at::Tensor denominator =
        state.exp_avg_sq.sqrt().div_(std::sqrt(1.0 - std::pow(kBeta2, t))).add_(kAdamEps);
    values.addcdiv_(state.exp_avg, denominator, -lr_ / (1.0 - std::pow(kBeta1, t)));
  }
}

void PlainOptimizer::zero_grad() {
  for (const at::Tensor& leaf : leaves_) {
    leaf.mutable_grad() = at::Tensor();
  }
}

std::vector<at::Tensor> trainable_shards(fsdp::Unit& root) {
  std::vector<at::Tensor> shards;
  for (const fsdp::ShardedParam* param : root.parameters()) {
    if (param->requires_grad()) {
      shards.push_back(param->sharded());
    }
  }
  return shards;
}

std::vector<at::Tensor> trainable_parameters(const nn::Module& module) {
  std::vector<at::Tensor> trainable;
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
    if (parameter.tensor.requires_grad()) {
      trainable.push_back(parameter.tensor);
    }
  }
  return trainable;
}

std::vector<double> averaged_backward(nn::Module& reference, int world, const Loss& loss) {
  std::vector<double> losses;
  for (int rank = 0; rank < world; ++rank) {
    const at::Tensor value = loss(reference, rank);
    value.backward(at::full_like(value, 1.0 / world));
    losses.push_back(value.item<double>());
  }
  return losses;
}

void expect_same_training(const Pair& pair, const Training& training, const StepLoss& loss) {
  const std::vector<at::Tensor> shards = trainable_shards(pair.root);
  const std::vector<at::Tensor> parameters = trainable_parameters(pair.reference);
  PlainOptimizer sharded(shards, training.rule, training.lr);
  PlainOptimizer reference(parameters, training.rule, training.lr);
  bool equal = true;  // a rank that has seen a difference goes on, for the others' collectives
  int batch = 0;
  for (int step = 0; step < training.steps; ++step) {
    for (int micro = 0; micro < training.microbatches; ++micro, ++batch) {
      if (training.before) {
        training.before(micro);
      }
      const at::Tensor value = loss(pair.sharded, batch, pair.rank);
      value.backward();
      const std::vector<double> expected = averaged_backward(
          pair.reference, pair.world,
          [&](nn::Module& module, int rank) { return loss(module, batch, rank); });
      equal = equal && expect_close(value.item<double>(), expected[static_cast<size_t>(pair.rank)],
                                    training.losses, at_step("loss at", batch));
    }
    training.after_reference();
    equal =
        equal && expect_parity(pair.root, pair.reference, training.values, at_step("before", step));
    sharded.step();
    reference.step();
    equal =
        equal && expect_parity(pair.root, pair.reference, training.values, at_step("after", step));
    forget_gradients(shards, training.fills_with_zero);
    forget_gradients(parameters, training.fills_with_zero);
  }
}

}  // namespace fsdp2::checklist
