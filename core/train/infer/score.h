// What a language model, sharded or not, says of given tokens: their log-probabilities, the entropy
// at each, and the mean loss over all ranks. Without gradients, and without ever holding all
// logits.
//
// Collective if the module is sharded; ranks may have batches of different sizes, or of no rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "core/nn/layers/head_scores.h"
#include "core/nn/module.h"

namespace fsdp2::train {

struct InferOptions {
  int64_t batch_size = 0;  // rows of a forward; 0: all
  int64_t chunk_rows = 0;  // tokens whose logits exist at a time; 0: by the size of the vocabulary
  double temperature = 1.0;                   // logits are divided by it
  std::optional<bool> reshard_after_forward;  // see ForwardRun
};

// Throws what score would throw of these, on this rank alone. Errors: kInvalidArgument,
// kUnsupported for a module that is no language model.
void check_score(const nn::Module& module, const std::vector<at::Tensor>& inputs,
                 const InferOptions& options);

// inputs: tokens [B,S], labels, positions, mask (see LanguageModel), undefined where they are left
// out. In the shape of the labels; without labels, what follows each token is its label, and the
// scores are [B,S-1]. B may be 0. REQUIRES: check_score.
nn::TokenScores score(nn::Module& module, const std::vector<at::Tensor>& inputs,
                      const InferOptions& options);

struct Evaluation {
  int64_t n_labels = 0;  // that count, over all ranks
  double loss = 0.0;     // their mean cross-entropy; NaN if there are none
};

// As score. REQUIRES: check_score.
Evaluation evaluate(nn::Module& module, const std::vector<at::Tensor>& inputs,
                    const InferOptions& options);

}  // namespace fsdp2::train
