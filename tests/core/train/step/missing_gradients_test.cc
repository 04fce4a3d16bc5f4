// Parameters without a gradient are named in the first step, and only there.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/train/optim/sgd.h"
#include "core/train/step/train_step.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

class HalfUsed : public nn::Module {
 public:
  explicit HalfUsed(bool uses_both) : nn::Module("HalfUsed"), uses_both_(uses_both) {
    used_ = register_parameter("used", at::ones({4}));
    other_ = register_parameter("other", at::ones({4}));
    frozen_ = register_parameter("frozen", at::ones({4}), /*requires_grad=*/false);
  }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor sum = (inputs[0].toTensor() * used_).sum();
    return uses_both_ ? sum + other_.sum() : sum;
  }

 private:
  bool uses_both_;
  at::Tensor used_;
  at::Tensor other_;
  at::Tensor frozen_;
};

// What two steps on two ranks log.
std::vector<std::string> warnings_of_two_steps(bool uses_both, bool reduces = true) {
  std::vector<std::string> warnings;
  set_log_sink(LogLevel::kWarning,
               [&](const LogRecord& record) { warnings.push_back(record.message); });
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const LogScope scope;
    const auto model = std::make_shared<HalfUsed>(uses_both);
    const auto root = fsdp::fully_shard(model, Mesh::for_fsdp(world, 0), {});
    root->set_requires_gradient_sync(reduces);
    TrainStep step(model, make_sgd(root, {}), {});
    step.run({{at::ones({4})}});
    step.run({{at::ones({4})}});
  });
  set_log_sink(LogLevel::kWarning, {});
  return warnings;
}

TEST(MissingGradients, AreNamedOnce) {
  EXPECT_EQ(warnings_of_two_steps(/*uses_both=*/false),
            std::vector<std::string>{
                "got no gradient in the first step, and no update, although not frozen: other"});
}

TEST(MissingGradients, AreNotSpokenOfWhereThereAreNone) {
  EXPECT_TRUE(warnings_of_two_steps(/*uses_both=*/true).empty());
}

TEST(MissingGradients, AreNotThoseThatTheCallerLeavesUnreduced) {
  EXPECT_TRUE(warnings_of_two_steps(/*uses_both=*/true, /*reduces=*/false).empty());
}

// What a step of the model fails with.
Error error_of_step(const std::shared_ptr<nn::Module>& model) {
  std::optional<Error> failure;
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    const auto root = fsdp::fully_shard(model, Mesh::for_fsdp(world, 0), {});
    TrainStep step(model, make_sgd(root, {}), {});
    try {
      step.run({{at::ones({4}, at::kLong)}});
    } catch (const Error& error) {
      failure = error;
    }
  });
  return failure.value_or(Error(Code::kInternal, "no failure"));
}

class Forward : public nn::Module {
 public:
  using Function = std::function<at::Tensor(const at::Tensor& weight, const at::Tensor& input)>;
  explicit Forward(Function function) : nn::Module("Forward"), function_(std::move(function)) {
    weight_ = register_parameter("weight", at::ones({4, 2}));
  }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    return function_(weight_, inputs[0].toTensor());
  }

 private:
  Function function_;
  at::Tensor weight_;
};

TEST(MissingGradients, ALossOfNoParameterIsRefused) {
  const Error error = error_of_step(std::make_shared<Forward>(
      [](const at::Tensor&, const at::Tensor& input) { return input.sum().to(at::kFloat); }));
  EXPECT_EQ(error.code(), Code::kWrongState);
  EXPECT_EQ(error.message(),
            "the loss depends on no parameter that is trained: expected one that is not frozen and "
            "that the forward uses");
}

TEST(MissingGradients, ASparseOneIsRefusedByName) {
  const Error error = error_of_step(
      std::make_shared<Forward>([](const at::Tensor& weight, const at::Tensor& input) {
        return at::embedding(weight, input, -1, false, /*sparse=*/true).sum();
      }));
  EXPECT_EQ(error.code(), Code::kUnsupported);
  EXPECT_NE(error.message().find("weight: expected a dense gradient"), std::string::npos)
      << error.message();
}

}  // namespace
}  // namespace fsdp2::train
