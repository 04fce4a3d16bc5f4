// Parameters that were frozen when a checkpoint of ours was saved and now are not, or the other way
// round: it has the optimizer's state of those alone that were not.
#pragma once

#include <string>
#include <vector>

#include "core/ckpt/state/state_names.h"
#include "core/ckpt/state/state_source.h"
#include "core/train/state/training_state.h"

namespace fsdp2::train {

struct FreezeChanges {
  std::vector<fsdp::ShardedParam*> thawed;  // whose state is not in it
  std::vector<fsdp::ShardedParam*> frozen;  // whose state is, and nobody wants it

  bool has_thawed(const fsdp::ShardedParam* param) const;
  // The state of thawed ones begins anew; returns its names. Rank 0 warns of both.
  std::vector<std::string> carry_out(const TrainingObjects& objects,
                                     const std::string& checkpoint) const;
};

// None in a checkpoint of another trainer, whose optimizer may leave out more, or in one without
// any of the optimizer's state. REQUIRES: objects.optimizer.
FreezeChanges find_freeze_changes(const TrainingObjects& objects, const ckpt::StateSource& source,
                                  const ckpt::StateNames& names);

}  // namespace fsdp2::train
