#include "core/nn/layers/head_scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "core/nn/kernels/linear_product.h"
#include "core/nn/layers/activation.h"
#include "core/nn/layers/head_loss.h"

namespace fsdp2::nn {

namespace {

// logits [N,V], which are spent; labels [N] in [0, V). Both scores are [N].
TokenScores scores_of_chunk(const at::Tensor& logits, const at::Tensor& labels,
                            double temperature) {
  const at::Tensor wide = logits.to(at::kFloat).div_(temperature);
  wide.sub_(wide.amax(1, /*keepdim=*/true));
  const at::Tensor picked = wide.gather(1, labels.unsqueeze(1)).squeeze(1);
  const at::Tensor weights = wide.exp();
  const at::Tensor sum = weights.sum(1);
  const at::Tensor log_sum = sum.log();
  const at::Tensor mean = weights.mul_(wide).sum(1).div_(sum);
  return {picked - log_sum, log_sum - mean};
}

// x [N,D], labels [N] in [0, V).
TokenScores scores_of_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                           const HeadScoreOptions& options) {
  const int64_t rows = x.size(0);
  const int64_t chunk_rows = rows_of_chunk(weight, options.chunk_rows);
  const at::TensorOptions wide_options = x.options().dtype(at::kFloat);
  TokenScores scores{at::empty({rows}, wide_options), at::empty({rows}, wide_options)};
  const ProductOperand shared_weight = weight;
  for (int64_t row = 0; row < rows; row += chunk_rows) {
    const int64_t count = std::min(chunk_rows, rows - row);
    const at::Tensor logits =
        soft_capped(product_nt(x.narrow(0, row, count), shared_weight), options.logit_cap);
    const TokenScores part =
        scores_of_chunk(logits, labels.narrow(0, row, count), options.temperature);
    scores.log_probs.narrow(0, row, count).copy_(part.log_probs);
    scores.entropies.narrow(0, row, count).copy_(part.entropies);
  }
  return scores;
}

// Zero where a label does not count, and NaN for one that is outside the vocabulary, which nobody
// has looked at.
TokenScores scores_of_all(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                          const at::Tensor& counts, const HeadScoreOptions& options) {
  const at::Tensor known = labels.ge(0).logical_and_(labels.lt(weight.size(0)));
  const TokenScores scores = scores_of_rows(
      x, weight, labels.masked_fill(counts.logical_and(known).logical_not_(), 0), options);
  scores.log_probs.mul_(counts).masked_fill_(counts.logical_and(known.logical_not()),
                                             std::numeric_limits<double>::quiet_NaN());
  scores.entropies.mul_(counts);
  return scores;
}

at::Tensor spread(const at::Tensor& values, const at::Tensor& rows, const at::Tensor& labels) {
  return at::zeros({labels.numel()}, values.options())
      .index_copy_(0, rows, values)
      .view(labels.sizes());
}

}  // namespace

TokenScores head_scores(const at::Tensor& hidden, const at::Tensor& weight,
                        const at::Tensor& labels_in, const HeadScoreOptions& options) {
  check_head_inputs("head_scores", hidden, weight, labels_in);
  const at::NoGradGuard no_grad;
  const at::Tensor x = hidden.reshape({-1, weight.size(1)});
  const at::Tensor labels = labels_in.reshape({-1});
  const at::Tensor counts = labels.ne(options.ignore_index);
  if (!x.is_cpu()) {  // the host would wait for the number of rows that count
    const TokenScores scores = scores_of_all(x, weight, labels, counts, options);
    return {scores.log_probs.view(labels_in.sizes()), scores.entropies.view(labels_in.sizes())};
  }
  const at::Tensor rows = counts.nonzero().squeeze(1);
  const TokenScores scores =
      scores_of_rows(x.index_select(0, rows), weight, labels.index_select(0, rows), options);
  return {spread(scores.log_probs, rows, labels_in), spread(scores.entropies, rows, labels_in)};
}

}  // namespace fsdp2::nn
