// As torch.optim.SGD without dampening: decay is added to the gradient.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
};

// kInvalidArgument for what the algorithm cannot do.
void check(const SgdOptions& options);

std::unique_ptr<Optimizer> make_sgd(std::shared_ptr<fsdp::Unit> root, const SgdOptions& options);

// Moves parameters of an SGD into a new group; see Note [Groups] in optimizer.h.
void add_group(Optimizer& optimizer, const std::vector<std::string>& names,
               const SgdOptions& options);

}  // namespace fsdp2::train
