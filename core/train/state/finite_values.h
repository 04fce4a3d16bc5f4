// Keeps values that an update has ruined out of checkpoints.
#pragma once

#include "core/train/state/training_state.h"

namespace fsdp2::train {

// kNotFinite on all ranks, naming the first tensor of the objects' state that has an infinity or
// NaN on any rank, if something may have made such values (Tree::cause_of_bad_values). Looks at no
// value otherwise. Forgets the cause if all was well, the optimizer's state included. Collective:
// one all-reduce of a number.
void check_finite(const TrainingObjects& objects);

}  // namespace fsdp2::train
