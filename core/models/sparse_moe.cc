#include "core/models/sparse_moe.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "core/base/error.h"

namespace fsdp2::models {

SparseMoeBlock::SparseMoeBlock(const DecoderConfig& config, at::ScalarType dtype)
    : Module(config.kind("SparseMoeBlock")),
      experts_per_token_(config.experts->experts_per_token),
      normalize_weights_(config.experts->normalize_weights) {
  gate_ = register_module("gate",
                          std::make_shared<nn::Linear>(config.hidden_size, config.experts->experts,
                                                       /*has_bias=*/false, dtype));
  expert_list_ = register_module("experts", std::make_shared<nn::ModuleList>());
  for (int64_t i = 0; i < config.experts->experts; ++i) {
    // A kind apart from the dense layers' MLP, so that units can be made of experts alone; to the
    // transformers library both are of one class.
    experts_.push_back(std::make_shared<nn::SwiGluMlp>(config.kind("Expert"), config.hidden_size,
                                                       config.experts->intermediate_size,
                                                       /*has_bias=*/false, dtype));
    experts_.back()->add_class_alias(config.kind("MLP"));
    expert_list_->append(experts_.back());
  }
}

SparseMoeBlock::Routing SparseMoeBlock::route(const at::Tensor& tokens) {
  const at::Tensor probabilities = at::softmax((*gate_)(tokens), -1, at::kFloat);
  auto [weight, expert] = probabilities.topk(experts_per_token_, -1);
  if (normalize_weights_) {
    weight = weight / weight.sum(-1, /*keepdim=*/true);
  }
  const at::Tensor picked = expert.flatten();
  // Stable, so that a token's experts and an expert's tokens keep their order on every device.
  const at::Tensor order = picked.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  // bincount would wait for the device twice more, to look at the smallest and the largest.
  const at::Tensor counts = at::zeros({static_cast<int64_t>(experts_.size())}, picked.options())
                                .scatter_add_(0, picked, at::ones_like(picked))
                                .to(at::kCPU);
  const auto* first = counts.const_data_ptr<int64_t>();
  return {order.floor_divide(experts_per_token_),
          weight.to(tokens.scalar_type()).flatten().index_select(0, order).unsqueeze(1),
          {first, first + counts.numel()}};
}

c10::IValue SparseMoeBlock::forward(nn::Values inputs) {
  FSDP2_CHECK(inputs.size() == 1 && inputs[0].isTensor(), Code::kInvalidArgument,
              "{}: expected hidden states, got {} inputs", kind(), inputs.size());
  const at::Tensor& hidden = inputs[0].toTensor();
  const at::Tensor tokens = hidden.reshape({-1, hidden.size(-1)});
  const Routing routing = route(tokens);
  const at::Tensor sorted = tokens.index_select(0, routing.token);
  std::vector<at::Tensor> outputs;
  int64_t begin = 0;
  // On no tokens an expert's gradient is zero, where one that did not run would have none: decay
  // and moments then move all experts alike, and a unit runs on every rank, whichever tokens it
  // has.
  const bool all_run = c10::GradMode::is_enabled();
  for (size_t i = 0; i < experts_.size(); ++i) {
    const int64_t count = routing.counts[i];
    if (count > 0 || all_run) {
      outputs.push_back((*experts_[i])(sorted.narrow(0, begin, count)));
    }
    begin += count;
  }
  const at::Tensor weighted = at::cat(outputs) * routing.weight;
  return at::zeros_like(tokens).index_add(0, routing.token, weighted).view(hidden.sizes());
}

}  // namespace fsdp2::models
