// Lists what a checkpoint of any format holds, without reading the tensors' values.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ckpt/formats/checkpoint_format.h"

namespace fsdp2::ckpt {

// A piece of a tensor, or an object, and where it lies.
struct ListedChunk {
  std::vector<int64_t> offsets;  // in the tensor; empty for an object
  std::vector<int64_t> sizes;
  int64_t bytes = 0;  // of its values; for an object what it takes in the file
  std::string file;   // path
  std::optional<std::string> checksum = {};  // that a reader compares it with; see inspect.h
};

struct ListedTensor {
  std::string name;
  std::optional<at::ScalarType> dtype;  // none: a Python object that is no tensor
  std::vector<int64_t> shape;           // global
  std::vector<ListedChunk> chunks;
  int64_t bytes = 0;  // of all chunks
};

struct CheckpointListing {
  CheckpointFormat format;
  std::vector<ListedTensor> tensors;  // in the order of the files
  int64_t bytes = 0;                  // of all tensors' values
};

// Errors: those of the format's reader, and of detect_format.
CheckpointListing list_checkpoint(const std::string& path);

}  // namespace fsdp2::ckpt
