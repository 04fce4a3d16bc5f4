// Modules that read a parameter without recording gradients of it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/nn/parameter_reads.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::fsdp {
namespace {

constexpr int64_t kWidth = 5;

// Backward has the gradient of the weight before it comes to the product that reads it aside.
class AsideScale : public nn::Module, public nn::UntrackedReads {
 public:
  AsideScale() : nn::Module("AsideScale") {
    weight_ = register_parameter("weight", at::linspace(0.5, 1.5, kWidth));
  }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor& x = inputs[0].toTensor();
    const at::Tensor aside = at::tanh(at::tanh(x * weight_.detach()));
    return aside + at::tanh(x * weight_);
  }

 private:
  at::Tensor weight_;
};

class AsideStack : public nn::Module {
 public:
  AsideStack() : nn::Module("AsideStack") {
    for (int i = 0; i < 3; ++i) {
      blocks_.push_back(
          register_module("block" + std::to_string(i), std::make_shared<AsideScale>()));
    }
  }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    at::Tensor x = inputs[0].toTensor();
    for (const auto& block : blocks_) {
      x = static_cast<nn::Module&>(*block)(x);
    }
    return x;
  }

 private:
  std::vector<std::shared_ptr<AsideScale>> blocks_;
};

at::Tensor loss_of(nn::Module& module, int rank) {
  return module(at::full({2, kWidth}, 0.3 * (rank + 1))).sum();
}

TEST(UntrackedReads, FindTheValuesInBackward) {
  for (const Schedule schedule : {Schedule::kAgreed, Schedule::kOnUse}) {
    run_ranks(2, [schedule](const std::shared_ptr<World>& world) {
      Policy policy;
      policy.schedule = schedule;
      const auto model = std::make_shared<AsideStack>();
      const auto root =
          fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), policy, {"AsideScale"});
      loss_of(*model, world->rank()).backward();

      AsideStack reference;
      checklist::averaged_backward(reference, world->size(), loss_of);
      checklist::expect_parity(*root, reference, checklist::kT32, "after backward");
    });
  }
}

}  // namespace
}  // namespace fsdp2::fsdp
