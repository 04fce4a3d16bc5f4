// What a masked language model learns from: some tokens of each row are hidden, and the model tells
// them from those around them.
//
// Shapes: B batch, S sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fsdp2::nn {

struct Hiding {
  int64_t mask_token = 0;  // stands where a token is hidden
  double probability = 0;  // from above 0 to below 1
};

// tokens [B,S] int64 with the mask token in place of the hidden ones, and labels [B,S] int64: these
// tokens where they are hidden, -100 elsewhere.
struct HiddenTokens {
  at::Tensor tokens;
  at::Tensor labels;
};

// Which tokens may be hidden is said by labels [B,S] as causal models take them, each the token
// that follows in its row: those that are a label that is not -100. So a row's first token stays as
// it is, and of records only answers are hidden. In a row that has any, `probability` of them
// are, rounded, but at least one. Which these are follows from keys [B] int32 (row_keys.h).
HiddenTokens hide_tokens(const at::Tensor& tokens, const at::Tensor& labels, const Hiding& hiding,
                         const at::Tensor& keys);

// How many that are; none of labels of another shape. Waits for the device of the labels.
int64_t count_hidden(const at::Tensor& labels, const Hiding& hiding);

}  // namespace fsdp2::nn
