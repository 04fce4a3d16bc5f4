// Trees in .pth files: whole, or as one file a rank with that rank's rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/state/full_writer.h"
#include "core/ckpt/state/tree_copy.h"
#include "core/ckpt/value/python_value.h"

namespace fsdp2::ckpt {

// A flat dict, as a model's state_dict() is. Errors: those of PthWriter.
std::unique_ptr<FullWriter> make_pth_writer(const std::string& path, std::vector<TensorSpec> plan);
// Any tree: `plan` describes its tensors in the order of their storage keys.
std::unique_ptr<FullWriter> make_tree_writer(const std::string& path, const PythonValue& tree,
                                             std::vector<TensorSpec> plan);

// Errors: those of PthWriter and of the source.
void copy_to_pth(const TreeCopy& copy);
// One file a rank, each with its rows as torch.chunk cuts them; see per_rank_files.h. They appear
// when all are written. In addition: those of PendingRankFiles; kInvalidArgument for less than one
// rank.
void copy_to_per_rank_pth(const TreeCopy& copy);

}  // namespace fsdp2::ckpt
