// The chunk of a module's loss for a while.
#pragma once

#include <cstdint>

#include "core/nn/token_loss.h"

namespace fsdp2::nn {

// The loss computes so many labels at a time while this lives, and as many as it sees fit from then
// on; with 0 it is left alone. Error: kUnsupported for a module that is no TokenLoss.
class LossChunk {
 public:
  LossChunk(Module& module, int64_t labels)
      : loss_(labels > 0 ? &token_loss(module, "loss in chunks") : nullptr) {
    set(labels);
  }
  ~LossChunk() { set(0); }
  LossChunk(const LossChunk&) = delete;
  LossChunk& operator=(const LossChunk&) = delete;

 private:
  void set(int64_t labels) {
    if (loss_ != nullptr) {
      loss_->set_loss_chunk(labels);
    }
  }

  TokenLoss* loss_;
};

}  // namespace fsdp2::nn
