// The loss of routers that send most tokens to few experts: transformers' load_balancing_loss_func.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fsdp2::models {

// E * sum over experts of (the tokens' picks of it / tokens) * (its mean probability), over the
// tokens of all layers together: a fp32 scalar, about the number of picks a token where all experts
// are picked alike. router_logits: by layer [T,E]. mask [B,S] with B * S = T: tokens where it is 0
// do not count, and where none does, the loss is 0; undefined: all do. Gradients flow through the
// probabilities.
at::Tensor router_loss(const std::vector<at::Tensor>& router_logits, int64_t experts_per_token,
                       const at::Tensor& mask);

}  // namespace fsdp2::models
