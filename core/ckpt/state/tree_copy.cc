#include "core/ckpt/state/tree_copy.h"

namespace fsdp2::ckpt {

TensorSpec spec_of(const TreeMove& move) {
  return {name_of(move.path), *move.from->dtype, move.from->shape};
}

}  // namespace fsdp2::ckpt
