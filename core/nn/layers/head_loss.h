// The last linear layer of a language model together with its cross-entropy, in chunks of rows, so
// that all logits are never held at once.
//
// Loss and both gradients are computed in forward. Backward only scales them: it needs neither the
// hidden states nor the weight, so the weight's memory may be freed after forward, and a sharded
// head is not gathered again for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fsdp2::nn {

// The rows of a chunk: `asked`, or, if that is 0, what suits the size of the vocabulary. weight
// [V,D].
int64_t rows_of_chunk(const at::Tensor& weight, int64_t asked);

struct HeadLossOptions {
  int64_t ignore_index = -100;
  int64_t chunk_rows = 0;  // 0: by the size of the vocabulary
  // How many labels the mean is over, if these are a part of them: one integer, where they are.
  // Undefined: those that count here. Then no labels that count are a loss of 0.
  at::Tensor counted;
  double logit_cap = 0;  // logits are soft_capped() by it; 0: they are not
};

// Throws what head_loss says of shapes and dtypes; `function` begins the message.
void check_head_inputs(const char* function, const at::Tensor& hidden, const at::Tensor& weight,
                       const at::Tensor& labels);

// Mean cross-entropy over the rows whose label is not ignore_index, a fp32 scalar; NaN if there are
// none, as in PyTorch. Rows that are left out cost nothing on the CPU; on a device, where their
// number is not known to the host, they cost what others do.
//   hidden [..., D], weight [V, D], labels [...] int64 in [0, V) or ignore_index
// Error: kInvalidArgument for shapes, dtypes or, on the CPU, labels that are not so.
// Logits are computed in the weight's dtype and cast to fp32 before the loss, as transformers does.
// The weight's gradient is summed over chunks in fp32.
at::Tensor head_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                     const HeadLossOptions& options = {});

}  // namespace fsdp2::nn
