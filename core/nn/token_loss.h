// Losses that are means over labels, of which some may be left out. Together with the number of
// labels that count, such a loss says its sum, so that a mean can be taken over the labels of
// several batches and ranks.
#pragma once

#include <cstdint>

#include "core/nn/module.h"

namespace fsdp2::nn {

// What a module has whose output is such a loss.
class TokenLoss {
 public:
  virtual ~TokenLoss() = default;

  // How many labels among forward's inputs count in the loss. Where none does, the loss may be
  // anything, but its gradients are zero, except those of a part that is no mean over labels, as
  // the loss of routers.
  virtual int64_t counted_labels(const Values& inputs) const = 0;

  // From now on the loss computes so many labels at a time (0: as many as it sees fit), with their
  // gradients, so that what it needs for each never exists for all. The loss stays the same but for
  // rounding.
  virtual void set_loss_chunk(int64_t labels) = 0;
};

// The module as a TokenLoss. Error: kUnsupported if it is none; purpose says what for.
const TokenLoss& token_loss(const Module& module, const char* purpose);
TokenLoss& token_loss(Module& module, const char* purpose);

}  // namespace fsdp2::nn
