// A mixture of experts: each token goes through the few MLPs that a router picks for it.
#pragma once

#include <memory>
#include <vector>

#include "core/models/config/decoder_config.h"
#include "core/nn/experts/expert_rows.h"
#include "core/nn/layers/layers.h"
#include "core/nn/module.h"
#include "core/nn/module_list.h"

namespace fsdp2::models {

// hidden [..., D] -> [..., D]: the sum over a token's experts of weight * expert(token). Weights
// are the softmax, in fp32, of the router's logits over all experts. Modules: gate (Linear D ->
// experts), experts (ModuleList of MLPs). An expert that no token picks gets a zero gradient; where
// none are recorded it does not run. Where the routers have a loss, the output is a tuple of the
// hidden states and the router's logits [tokens, experts].
class SparseMoeBlock : public nn::Module {
 public:
  SparseMoeBlock(const DecoderConfig& config, at::ScalarType dtype);

  nn::InputCount input_count() const override { return {1, 1}; }

 protected:
  c10::IValue forward(nn::Values inputs) override;

 private:
  // What the router makes of tokens [T,D].
  struct Routing {
    at::Tensor logits;   // [T,E]
    at::Tensor weights;  // [T,K] of the experts picked
    nn::ExpertRows rows;
  };
  Routing route(const at::Tensor& tokens);
  // [T,D]: what the experts make of the tokens.
  at::Tensor mix(const at::Tensor& tokens, const Routing& routing);

  int64_t experts_per_token_;
  bool normalize_weights_;
  bool gives_logits_;
  std::shared_ptr<nn::Linear> gate_;
  std::shared_ptr<nn::ModuleList> expert_list_;
  std::vector<std::shared_ptr<nn::GatedMlp>> experts_;
};

}  // namespace fsdp2::models
