// A tree of tensors and objects as a DCP directory that one process writes.
#pragma once

#include "core/ckpt/state/tree_copy.h"

namespace fsdp2::ckpt {

// The directory appears as a whole. Errors: those of PendingDirectory, ItemWriter and the source.
void copy_to_dcp(const TreeCopy& copy);

}  // namespace fsdp2::ckpt
