// AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019), as
// torch.optim.AdamW, and Adam, as torch.optim.Adam, which it is with another decay.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool decoupled_weight_decay = true;  // false: Adam, where the decay is added to the gradient
};

// kInvalidArgument for what the algorithm cannot do.
void check(const AdamWOptions& options);

std::unique_ptr<Optimizer> make_adamw(std::shared_ptr<fsdp::Unit> root,
                                      const AdamWOptions& options);

// Moves parameters of an AdamW into a new group; see Note [Groups] in optimizer.h.
void add_group(Optimizer& optimizer, const std::vector<std::string>& names,
               const AdamWOptions& options);

}  // namespace fsdp2::train
