// What the last linear layer of a language model says of given tokens: their log-probabilities, and
// the entropy of the distribution that each was drawn from. In chunks of rows, so that all logits
// are never held at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fsdp2::nn {

struct HeadScoreOptions {
  int64_t ignore_index = -100;
  int64_t chunk_rows = 0;    // 0: by the size of the vocabulary
  double temperature = 1.0;  // logits are divided by it; > 0
  double logit_cap = 0;      // see HeadLossOptions
};

// Natural logarithms, fp32, in the shape of the labels; 0 where the label is ignore_index.
struct TokenScores {
  at::Tensor log_probs;
  at::Tensor entropies;
};

// Logits are computed in the weight's dtype and cast to fp32 before the softmax, as in head_loss.
// Rows that are left out cost nothing on the CPU. No gradient is recorded.
//   hidden [..., D], weight [V, D], labels [...] int64 in [0, V) or ignore_index
// Errors: those of head_loss.
TokenScores head_scores(const at::Tensor& hidden, const at::Tensor& weight,
                        const at::Tensor& labels, const HeadScoreOptions& options = {});

}  // namespace fsdp2::nn
