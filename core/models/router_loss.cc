#include "core/models/router_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

namespace fsdp2::models {

namespace {

// [T * layers] fp32: how much each token of each layer counts in a mean.
at::Tensor shares_of_tokens(const at::Tensor& logits, int64_t layers, const at::Tensor& mask) {
  const auto options = logits.options().dtype(at::kFloat);
  if (!mask.defined()) {
    return at::full({logits.size(0)}, 1.0 / static_cast<double>(logits.size(0)), options);
  }
  const at::Tensor counts = mask.ne(0).to(options.device(), at::kFloat).flatten().repeat({layers});
  return counts / counts.sum().clamp_min(1);  // where none counts, neither does the loss
}

}  // namespace

at::Tensor router_loss(const std::vector<at::Tensor>& router_logits, int64_t experts_per_token,
                       const at::Tensor& mask) {
  const at::Tensor logits = at::cat(router_logits);
  const auto layers = static_cast<int64_t>(router_logits.size());
  const at::Tensor shares = shares_of_tokens(logits, layers, mask).unsqueeze(1);
  const at::Tensor probabilities = at::softmax(logits, -1, at::kFloat);
  const at::Tensor picks = std::get<1>(probabilities.topk(experts_per_token, -1));
  const at::Tensor picked =
      at::zeros({logits.size(1)}, shares.options())
          .scatter_add_(0, picks.flatten(), shares.expand_as(picks).flatten());
  const at::Tensor probable = (probabilities * shares).sum(0);
  return (picked * probable).sum() * logits.size(1);
}

}  // namespace fsdp2::models
