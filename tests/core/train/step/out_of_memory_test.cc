// Steps that memory does not suffice for: what the error says beside LibTorch's own words.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/train/optim/adamw.h"
#include "core/train/step/train_step.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kFeatures = 4;
constexpr int64_t kMoreThanThereIs = int64_t{1} << 50;

enum Greedy : int64_t { kNowhere, kBehindForward, kInBackward };

// Its output is its loss. Inputs: x [2, 4] and where memory runs out, a Greedy [1].
class Hungry : public nn::Module {
 public:
  Hungry() : nn::Module("Hungry") {
    stack =
        register_module("stack", std::make_shared<TinyStack>(TinyStackOptions{kFeatures, 6, 2}));
  }
  std::shared_ptr<TinyStack> stack;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const auto greedy = inputs[1].toTensor().item<int64_t>();
    const nn::Values to_block0(nn::Values{inputs[0], std::vector<int64_t>{0}});
    at::Tensor x = (*stack)(to_block0).toTensor();
    if (greedy == kBehindForward) {
      at::empty({kMoreThanThereIs});
    }
    if (greedy == kInBackward) {
      x.register_hook([](const at::Tensor&) { at::empty({kMoreThanThereIs}); });
    }
    return x.square().sum();
  }
};

std::vector<std::vector<at::Tensor>> batch_with(Greedy greedy) {
  return {{at::ones({2, kFeatures}), at::full({1}, static_cast<int64_t>(greedy), at::kLong)}};
}

// On one rank: of several that run out of memory, those who are told by another before say that.
TEST(OutOfMemory, AStepSaysWhereItWasWhatIsHeldAndWhatWasPlanned) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<Hungry>();
    const auto root = fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), {}, {"TinyBlock"});
    const std::shared_ptr<Optimizer> optimizer = make_adamw(root, {});
    TrainStep step(model, optimizer, {});
    for (const auto& [greedy, place] :
         {std::pair(kBehindForward, "it was in what follows the forward of stack.block0"),
          std::pair(kInBackward, "it was in the backward of the root")}) {
      const std::string message = message_of_error(
          [&, greedy = greedy] { step.run(batch_with(greedy)); }, Code::kOutOfMemory);
      EXPECT_THAT(message, AllOf(HasSubstr("can't allocate memory"), HasSubstr(place),
                                 HasSubstr("MB of parameters, gradients and buffers"),
                                 HasSubstr("MB are planned without activations"),
                                 HasSubstr("\"Out of memory\"")));
    }
    EXPECT_TRUE(step.run(batch_with(kNowhere)).applied);
  });
}

}  // namespace
}  // namespace fsdp2::train
