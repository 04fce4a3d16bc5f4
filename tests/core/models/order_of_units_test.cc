// Modules run in the order of the model, which FSDP's units rely on, whatever order a compiler
// gives to operands.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/models/registry.h"
#include "core/nn/layers/layers.h"
#include "core/nn/seeded_init.h"

namespace fsdp2::models {
namespace {

class OrderOfCalls : public nn::ForwardHooks {
 public:
  std::vector<const nn::Module*> called;
  void pre_forward(nn::Module& module, nn::Values& /*inputs*/) override {
    called.push_back(&module);
  }
  void post_forward(nn::Module& /*module*/, c10::IValue& /*output*/) override {}
  void forward_failed(nn::Module& /*module*/) noexcept override {}
};

TEST(OrderOfUnits, PositionsAreLookedUpAfterTokens) {
  const auto model = build(R"({
    "model_type": "gpt2", "vocab_size": 40, "n_embd": 16, "n_layer": 1, "n_head": 4,
    "n_positions": 8, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0
  })");
  nn::SeededInit source(1, 0.3);
  nn::materialize(*model, source);
  const auto order = std::make_shared<OrderOfCalls>();
  std::vector<const nn::Module*> tables;
  for (const auto& child : model->modules()) {
    auto* table = dynamic_cast<nn::Embedding*>(child.get());
    if (table != nullptr) {
      table->add_hooks(order);
      tables.push_back(table);
    }
  }
  (*model)(at::arange(6).view({1, 6}));
  EXPECT_EQ(tables.size(), 2U);
  EXPECT_EQ(order->called, tables);
}

}  // namespace
}  // namespace fsdp2::models
