// The object behind a step handle.
#pragma once

#include <cstdint>
#include <memory>

#include "capi/object.h"
#include "core/train/step/train_step.h"

namespace fsdp2::capi {

struct StepObject {
  std::shared_ptr<ShardObject> shard;
  int32_t accumulate;
  train::TrainStep step;
};

inline std::shared_ptr<StepObject> pin(fsdp2_step step) {
  return std::static_pointer_cast<StepObject>(HandleTable::global().pin(step.id, Kind::kStep));
}

}  // namespace fsdp2::capi
