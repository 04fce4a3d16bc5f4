// Nested Python values as the leaves that checkpoints hold, and back.
//
//   {"k0": [1], "k2": [tensor, 99, [{"k3": tensor}]]}   ->   k0, k2.0, k2.1, k2.2.0.k3
//
// Dicts are entered, and lists with a tensor or a dict in them, however deep it lies. All else is a
// leaf, tuples too, as torch.distributed.checkpoint's flatten_state_dict has it; like there, an
// empty dict leaves nothing behind.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/ckpt/state/state_dict.h"
#include "core/ckpt/value/python_value.h"

namespace fsdp2::ckpt {

struct TreeLeaf {
  StatePath path;
  const PythonValue* value;  // lives in the tree
};

// In the tree's order. A dict with a key that is neither text nor a number is a leaf.
std::vector<TreeLeaf> flatten_tree(const PythonValue& tree);

// Values under their paths, in any order, as nested dicts; numbers from 0 on make lists.
// kInvalidArgument if paths contradict each other.
PythonValue make_tree(const std::vector<std::pair<StatePath, PythonValue>>& values);

}  // namespace fsdp2::ckpt
