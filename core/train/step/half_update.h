// Values of which an unknown part has taken a step that failed.
#pragma once

#include <cstdint>

#include "core/fsdp/fully_shard.h"
#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

// The step has failed after it had begun to update parameters of the optimizer, on this rank.
void note_half_update(Optimizer& optimizer, int64_t step);

// kWrongState where a step has left this rank's parameters, or the optimizer's state, half updated:
// they must neither be saved nor trained on. optimizer: null: the parameters alone count.
void check_not_half_updated(fsdp::Unit& root, const Optimizer* optimizer);

// All of the parameters, and of the optimizer's state unless it is null, have been loaded.
void forget_half_update(fsdp::Unit& root, Optimizer* optimizer);

}  // namespace fsdp2::train
