// The hyper-parameters of an optimizer's groups, from a checkpoint.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/ckpt/state/state_names.h"
#include "core/ckpt/state/state_source.h"
#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

// Each group takes those of the saved groups that have its parameters: by their lists of names, or
// where they are listed parameter by parameter, or by what tells whose number is whose. A group
// without a saved one keeps its own. Parameters that were frozen, which Python's and ours save as
// the first group's, count for none.
//
// Saved groups that differ and have parameters in one group of the run are an error with both
// values (kInvalidArgument; Python's set_optimizer_state_dict silently takes the first's). So is
// what the optimizer cannot take (Optimizer::set_hyper_parameters), or is no plain value, with the
// group's name. If partial, the group keeps its own and the name goes to `refused`.
void load_hyper_parameters(const ckpt::StateSource& source, const ckpt::StateNames& names,
                           const std::set<std::string>& frozen, bool partial, Optimizer* optimizer,
                           std::vector<std::string>* refused);

}  // namespace fsdp2::train
