#include "core/nn/recompute/saved_tensor_hooks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>

#include <thread>

#include "core/base/error.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::nn {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

// Counts what is saved, and hands back the double of it.
class DoublingSource : public SavedTensorSource {
 public:
  int saved = 0;

  std::unique_ptr<SavedVariableHooks> make() override {
    struct Hooks : SavedVariableHooks {
      explicit Hooks(int* saved) : saved_(saved) {}
      void call_pack_hook(const at::Tensor& tensor) override {
        kept_ = tensor.detach();
        ++*saved_;
      }
      at::Tensor call_unpack_hook() override { return kept_ * 2; }
      int* saved_;
      at::Tensor kept_;
    };
    return std::make_unique<Hooks>(&saved);
  }
};

class ForeignEngine : public Engine {
 public:
  ~ForeignEngine() override { stop(); }
};

Engine& foreign_engine() {
  static auto* engine = new ForeignEngine;
  return *engine;
}

// d(x^2)/dx at 3, where backward sees what the hooks give for x.
double slope_at_3() {
  const at::Tensor x = at::full({}, 3.0).requires_grad_(true);
  x.square().backward();
  return x.grad().item<double>();
}

TEST(SavedTensorScope, RoutesWhatThisThreadSavesWhileItLives) {
  install_saved_tensor_hooks();
  DoublingSource source;
  {
    const SavedTensorScope scope(&source);
    EXPECT_EQ(slope_at_3(), 12);
    std::thread([] { EXPECT_EQ(slope_at_3(), 6); }).join();
  }
  EXPECT_EQ(slope_at_3(), 6);
  EXPECT_EQ(source.saved, 1);
}

TEST(SavedTensorScope, TheInnermostCounts) {
  install_saved_tensor_hooks();
  DoublingSource outer;
  DoublingSource inner;
  const SavedTensorScope outer_scope(&outer);
  {
    const SavedTensorScope inner_scope(&inner);
    slope_at_3();
    const SavedTensorScope plain(nullptr);
    EXPECT_EQ(slope_at_3(), 6);
  }
  EXPECT_EQ(slope_at_3(), 12);
  EXPECT_EQ(inner.saved, 1);
  EXPECT_EQ(outer.saved, 1);
}

TEST(SavedTensorScope, AnExceptionOutOfHooksLeavesTheOperation) {
  install_saved_tensor_hooks();
  struct RefusingSource : SavedTensorSource {
    std::unique_ptr<SavedVariableHooks> make() override { throw Error(Code::kInternal, "no"); }
  } source;
  const at::Tensor x = random_leaf({2}, 1);
  {
    const SavedTensorScope scope(&source);
    EXPECT_THROW(x.square(), Error);
  }
  EXPECT_EQ(slope_at_3(), 6);
}

TEST(SavedTensorHooks, AreRefusedOverAnotherEngine) {
  const auto code_of_install = [] {
    try {
      install_saved_tensor_hooks();
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kInternal;
  };
  torch::autograd::set_default_engine_stub(foreign_engine);
  EXPECT_EQ(code_of_install(), Code::kUnsupported);
  torch::autograd::set_default_engine_stub(Engine::get_base_engine);
  EXPECT_NO_THROW(install_saved_tensor_hooks());
  EXPECT_NE(&Engine::get_default_engine(), &Engine::get_base_engine());
}

}  // namespace
}  // namespace fsdp2::nn
