// Optimizers on shards. State tensors have the shard's shape and live beside it; one update touches
// this rank's rows only and communicates nothing. One parameter group, as PyTorch's default.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/fsdp/fully_shard.h"

namespace fsdp2::train {

// One tensor of a parameter's state under torch.optim's name for it.
struct OptimizerState {
  std::string name;   // "exp_avg"
  at::Tensor tensor;  // the optimizer's own: writing to it changes the state
  bool is_sharded;    // has the shard's shape; else the same on all ranks
};

// An entry of torch.optim's parameter group; std::monostate is None.
struct HyperParameter {
  using Value = std::variant<std::monostate, bool, double, std::pair<double, double>>;
  std::string name;
  Value value;
};

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

  const std::vector<fsdp::ShardedParam*>& params() const { return params_; }
  // The state of params()[index]; zeros, as before the first step, where there has been none.
  virtual std::vector<OptimizerState> state(size_t index) = 0;
  // All that torch.optim keeps beside the parameters, in its order.
  virtual std::vector<HyperParameter> hyper_parameters() const = 0;

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
