// Sources of random numbers that the caller holds.
#pragma once

#include <ATen/core/Generator.h>

#include <memory>

#include "capi/handle.h"
#include "include/fsdp2/base.h"

namespace fsdp2::capi {

struct GeneratorObject {
  at::Generator generator;  // under its own mutex, which operators lock while they draw
};

inline std::shared_ptr<GeneratorObject> pin(fsdp2_generator generator) {
  return std::static_pointer_cast<GeneratorObject>(
      HandleTable::global().pin(generator.id, Kind::kGenerator));
}

}  // namespace fsdp2::capi
