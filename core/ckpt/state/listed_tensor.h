// What a checkpoint holds and where it lies, without the tensors' values.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp2::ckpt {

// A piece of a tensor, or an object, and where it lies.
struct ListedChunk {
  std::vector<int64_t> offsets;  // in the tensor; empty for an object
  std::vector<int64_t> sizes;
  int64_t bytes = 0;  // of its values; for an object what it takes in the file
  std::string file;   // path
  std::optional<std::string> checksum = {};  // that a reader compares it with
};

struct ListedTensor {
  std::string name;
  std::optional<at::ScalarType> dtype;  // none: a Python object that is no tensor
  std::vector<int64_t> shape;           // global
  std::vector<ListedChunk> chunks;
  int64_t bytes = 0;  // of all chunks
};

// A tensor in one piece.
ListedTensor listed_whole(std::string name, at::ScalarType dtype, const std::vector<int64_t>& shape,
                          const std::string& file);

// Chunks of one tensor that several ranks' files list become one tensor's.
std::vector<ListedTensor> merge_by_name(std::vector<ListedTensor> tensors);

}  // namespace fsdp2::ckpt
