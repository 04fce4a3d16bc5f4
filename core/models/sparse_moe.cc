#include "core/models/sparse_moe.h"

#include <ATen/ops/softmax.h>
#include <c10/core/GradMode.h>

#include "core/base/error.h"
#include "core/nn/experts/grouped_mlps.h"

namespace fsdp2::models {

SparseMoeBlock::SparseMoeBlock(const DecoderConfig& config, at::ScalarType dtype)
    : Module(config.kind("SparseMoeBlock")),
      experts_per_token_(config.experts->experts_per_token),
      normalize_weights_(config.experts->normalize_weights),
      gives_logits_(config.experts->router_loss_factor > 0) {
  gate_ = register_module("gate",
                          std::make_shared<nn::Linear>(config.hidden_size, config.experts->experts,
                                                       /*has_bias=*/false, dtype));
  expert_list_ = register_module("experts", std::make_shared<nn::ModuleList>());
  for (int64_t i = 0; i < config.experts->experts; ++i) {
    // A kind apart from the dense layers' MLP, so that units can be made of experts alone; to the
    // transformers library both are of one class.
    experts_.push_back(std::make_shared<nn::GatedMlp>(
        config.kind("Expert"), config.hidden_size, config.experts->intermediate_size,
        /*has_bias=*/false, dtype, config.experts->names, config.activation));
    experts_.back()->add_class_alias(config.kind(config.experts->expert_class.c_str()));
    expert_list_->append(experts_.back());
  }
}

SparseMoeBlock::Routing SparseMoeBlock::route(const at::Tensor& tokens) {
  const at::Tensor logits = (*gate_)(tokens);
  const at::Tensor probabilities = at::softmax(logits, -1, at::kFloat);
  auto [weights, picks] = probabilities.topk(experts_per_token_, -1);
  if (normalize_weights_) {
    weights = weights / weights.sum(-1, /*keepdim=*/true);
  }
  // Sums are taken in the order of the experts, as transformers takes them.
  const auto [sorted_picks, order] = picks.sort(-1);
  return {logits, weights.gather(-1, order).to(tokens.scalar_type()),
          nn::sort_by_expert(sorted_picks, static_cast<int64_t>(experts_.size()))};
}

at::Tensor SparseMoeBlock::mix(const at::Tensor& tokens, const Routing& routing) {
  nn::ExpertRows rows = routing.rows;
  if (nn::may_run_grouped(experts_, tokens)) {
    const at::Tensor all = nn::rows_for_experts(tokens, rows).front();
    return nn::weighted_sums({nn::grouped_mlps(experts_, all, rows.ends)}, routing.weights, rows);
  }
  nn::split_by_expert(rows);
  std::vector<at::Tensor> parts = nn::rows_for_experts(tokens, rows);
  // On no tokens an expert's gradient is zero, where one that did not run would have none: decay
  // and moments then move all experts alike, and a unit runs on every rank, whichever tokens it
  // has.
  const bool all_run = c10::GradMode::is_enabled();
  for (size_t i = 0; i < experts_.size(); ++i) {
    if (rows.counts[i] > 0 || all_run) {
      parts[i] = (*experts_[i])(parts[i]).to(tokens.scalar_type());
    }
  }
  return nn::weighted_sums(parts, routing.weights, rows);
}

c10::IValue SparseMoeBlock::forward(nn::Values inputs) {
  FSDP2_CHECK(inputs.size() == 1 && inputs[0].isTensor(), Code::kInvalidArgument,
              "{}: expected hidden states, got {} inputs", kind(), inputs.size());
  const at::Tensor& hidden = inputs[0].toTensor();
  const at::Tensor tokens = hidden.reshape({-1, hidden.size(-1)});
  const Routing routing = route(tokens);
  const at::Tensor mixed = mix(tokens, routing).view(hidden.sizes());
  if (!gives_logits_) {
    return mixed;
  }
  return c10::ivalue::Tuple::create(mixed, routing.logits);
}

}  // namespace fsdp2::models
