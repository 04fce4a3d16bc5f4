#include "core/ckpt/state/tree_copy.h"

#include <cstddef>
#include <utility>

#include "core/ckpt/state/state_tree.h"
#include "core/ckpt/value/python_value.h"

namespace fsdp2::ckpt {

namespace {

// Stands for a leaf: keys are never tuples.
PythonValue leaf_of(size_t index) { return PythonTuple{{static_cast<int64_t>(index)}}; }

void collect_leaves(const PythonValue& value, std::vector<size_t>* leaves) {
  if (const auto* leaf = value.as<PythonTuple>()) {
    leaves->push_back(static_cast<size_t>(*leaf->items[0].as<int64_t>()));
    return;
  }
  for_each_child(value, [&](const PythonValue& child) { collect_leaves(child, leaves); });
}

}  // namespace

TensorSpec spec_of(const TreeMove& move) {
  return {name_of(move.path), *move.from->dtype, move.from->shape};
}

std::vector<TreeMove> in_tree_order(std::vector<TreeMove> moves) {
  std::vector<std::pair<StatePath, PythonValue>> leaves;
  for (const TreeMove& move : moves) {
    leaves.emplace_back(move.path, leaf_of(leaves.size()));
  }
  std::vector<size_t> order;
  collect_leaves(make_tree(leaves), &order);
  std::vector<TreeMove> ordered;
  for (const size_t index : order) {
    ordered.push_back(std::move(moves[index]));
  }
  return ordered;
}

}  // namespace fsdp2::ckpt
