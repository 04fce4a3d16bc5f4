// Optimizers on shards. State tensors have the shard's shape and live beside it; one update touches
// this rank's rows only and communicates nothing. One parameter group, as PyTorch's default.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "core/fsdp/fully_shard.h"

namespace fsdp2::train {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates every shard that has a gradient. The gradients are divided by grad_divisor on the way
  // (clipping: norm / max_norm where that is above 1), which costs no pass of its own.
  virtual void step(double grad_divisor = 1.0) = 0;
  void zero_grad();

  double lr() const { return lr_; }
  void set_lr(double lr);  // kInvalidArgument unless finite and >= 0
  fsdp::Unit& root() const { return *root_; }

 protected:
  // The trainable parameters of root's tree.
  Optimizer(std::shared_ptr<fsdp::Unit> root, double lr);

  std::shared_ptr<fsdp::Unit> root_;
  std::vector<fsdp::ShardedParam*> params_;
  double lr_;
};

// AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019), as
// torch.optim.AdamW.
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
};
std::unique_ptr<Optimizer> make_adamw(std::shared_ptr<fsdp::Unit> root,
                                      const AdamWOptions& options);

// As torch.optim.SGD without dampening: decay is added to the gradient.
struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
};
std::unique_ptr<Optimizer> make_sgd(std::shared_ptr<fsdp::Unit> root, const SgdOptions& options);

}  // namespace fsdp2::train
