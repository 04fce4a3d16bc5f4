// What goes with a shard into a checkpoint or out of one.
#pragma once

#include <memory>

#include "capi/nouns/train/loader.h"
#include "capi/nouns/train/step.h"
#include "capi/object.h"
#include "core/train/state/training_state.h"

namespace fsdp2::capi {

// Null: left out.
struct CheckpointParts {
  std::shared_ptr<OptimizerObject> optimizer;
  std::shared_ptr<StepObject> step;
  std::shared_ptr<LoaderObject> loader;

  // As the core takes them, while this lives. rng: the random generators, too.
  train::TrainingObjects objects(bool rng) const;
};

// Handles as a caller gives them, each null or of this shard; the loader is this call's alone then.
CheckpointParts read_parts(Call& call, const ShardObject& shard, fsdp2_optimizer optimizer,
                           fsdp2_step step, fsdp2_loader loader);

}  // namespace fsdp2::capi
