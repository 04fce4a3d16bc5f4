#include "core/nn/random/hidden_tokens.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "core/nn/random/row_keys.h"

namespace fsdp2::nn {

namespace {

constexpr int64_t kNoLabel = -100;

// [B,S-1], of all tokens but the first.
at::Tensor may_be_hidden(const at::Tensor& labels) {
  return labels.narrow(1, 0, labels.size(1) - 1).ne(kNoLabel);
}

// [B] int64, of may_be_hidden().
at::Tensor hidden_in_rows(const at::Tensor& may_be, double probability) {
  const at::Tensor count = may_be.sum(1);
  return count.to(at::kDouble).mul(probability).add(0.5).to(at::kLong).clamp_min(1).minimum(count);
}

}  // namespace

HiddenTokens hide_tokens(const at::Tensor& tokens, const at::Tensor& labels, const Hiding& hiding,
                         const at::Tensor& keys) {
  HiddenTokens hidden{tokens, at::full_like(labels, kNoLabel)};
  const int64_t count = tokens.size(1) - 1;
  if (count == 0) {
    return hidden;
  }
  const at::Tensor may_be = may_be_hidden(labels);
  // The ones with the least numbers are hidden, and those that may not be come last.
  const at::Tensor numbers =
      hashed(hashed_indices(count, keys).unsqueeze(0).bitwise_xor(keys.unsqueeze(1)))
          .to(at::kLong)
          .masked_fill(may_be.logical_not(), std::numeric_limits<int64_t>::max());
  const at::Tensor is_least = at::arange(count, tokens.options())
                                  .unsqueeze(0)
                                  .lt(hidden_in_rows(may_be, hiding.probability).unsqueeze(1));
  const at::Tensor is_hidden = at::zeros_like(may_be).scatter(
      1, numbers.argsort(/*stable=*/true, /*dim=*/1, /*descending=*/false), is_least);
  const at::Tensor behind_first = tokens.narrow(1, 1, count);
  hidden.tokens = tokens.clone();
  hidden.tokens.narrow(1, 1, count).masked_fill_(is_hidden, hiding.mask_token);
  hidden.labels.narrow(1, 1, count).copy_(at::where(is_hidden, behind_first, kNoLabel));
  return hidden;
}

int64_t count_hidden(const at::Tensor& labels, const Hiding& hiding) {
  const bool has_more_than_first = labels.dim() == 2 && labels.size(1) > 1;
  return !has_more_than_first
             ? 0
             : hidden_in_rows(may_be_hidden(labels), hiding.probability).sum().item<int64_t>();
}

}  // namespace fsdp2::nn
