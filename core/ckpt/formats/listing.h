// Lists what a checkpoint of any format holds, without reading the tensors' values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ckpt/formats/checkpoint_format.h"
#include "core/ckpt/state/listed_tensor.h"

namespace fsdp2::ckpt {

struct CheckpointListing {
  CheckpointFormat format;
  std::vector<ListedTensor> tensors;  // in the order of the files
  int64_t bytes = 0;                  // of all tensors' values
};

// Errors: those of the format's reader, and of detect_format.
CheckpointListing list_checkpoint(const std::string& path);

}  // namespace fsdp2::ckpt
