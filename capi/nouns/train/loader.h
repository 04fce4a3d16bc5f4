// The object behind a loader handle.
#pragma once

#include <cstdint>
#include <memory>

#include "capi/object.h"
#include "core/train/data/data_loader.h"

namespace fsdp2::capi {

struct LoaderObject {
  std::shared_ptr<Mesh> mesh;  // for its rank
  train::DataLoader loader;
  const std::shared_ptr<Busy> busy = std::make_shared<Busy>("loader");
  // What came with the last batch's inputs and labels.
  train::TokenBatch batch = {};
};

inline std::shared_ptr<LoaderObject> pin(fsdp2_loader loader) {
  return std::static_pointer_cast<LoaderObject>(
      HandleTable::global().pin(loader.id, Kind::kLoader));
}

}  // namespace fsdp2::capi
