// Parameters without a gradient are named in the first step, and only there.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace fsdp2::train
