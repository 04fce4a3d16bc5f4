#include "capi/nouns/checkpoint/checkpoint_parts.h"

namespace fsdp2::capi {

train::TrainingObjects CheckpointParts::objects(bool rng) const {
  train::TrainingObjects out;
  out.optimizer = optimizer ? optimizer->optimizer.get() : nullptr;
  out.step = step ? &step->step : nullptr;
  out.loader = loader ? &loader->loader : nullptr;
  out.rng = rng;
  return out;
}

CheckpointParts read_parts(Call& call, const ShardObject& shard, fsdp2_optimizer optimizer,
                           fsdp2_step step, fsdp2_loader loader) {
  CheckpointParts parts;
  if (optimizer.id != 0) {
    parts.optimizer = pin(optimizer);
    FSDP2_CHECK(parts.optimizer->shard->root == shard.root, Code::kInvalidArgument,
                "optimizer: expected one of this shard, found one of another");
  }
  if (step.id != 0) {
    parts.step = pin(step);
    FSDP2_CHECK(parts.step->shard->root == shard.root, Code::kInvalidArgument,
                "step: expected one of this shard, found one of another");
  }
  if (loader.id != 0) {
    parts.loader = pin(loader);
    call.occupy(parts.loader->busy);
  }
  return parts;
}

}  // namespace fsdp2::capi
