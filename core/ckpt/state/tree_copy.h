// A tree of tensors and objects on its way from one checkpoint into another, one tensor in memory
// at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/ckpt/state/state_source.h"
#include "core/ckpt/value/state_path.h"
#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

// An entry of the source and where it goes.
struct TreeMove {
  const StateEntry* from;
  StatePath path;
};

struct TreeCopy {
  const StateSource& source;
  std::vector<TreeMove> moves;
  std::string to;                                              // path
  std::function<void(const at::Tensor& tensor)> note_written;  // called after each tensor
  std::function<void()> check_source;  // called when all is read, before it takes its place; throws
  // For formats of one file a rank: how many, and the step in their names.
  int ranks = 1;
  int64_t step = 0;
};

// REQUIRES: the entry is a tensor.
TensorSpec spec_of(const TreeMove& move);

// The moves in the order in which the tree that they make has its leaves. A checkpoint may list
// them in any other: Python's lists the tensors of each rank, then what all ranks have alike.
// kInvalidArgument if paths contradict each other.
std::vector<TreeMove> in_tree_order(std::vector<TreeMove> moves);

}  // namespace fsdp2::ckpt
