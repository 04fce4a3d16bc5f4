// The formats of checkpoints, a row each: how one is told, and what can be done with it. A new
// format is a folder of its own, an enumerator and a row.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/formats/checkpoint_format.h"
#include "core/ckpt/hugging_face/model_files.h"
#include "core/ckpt/state/full_writer.h"
#include "core/ckpt/state/listed_tensor.h"
#include "core/ckpt/state/state_source.h"
#include "core/ckpt/state/tree_copy.h"
#include "core/ckpt/store/path_content.h"
#include "core/ckpt/store/pending_directory.h"

namespace fsdp2::ckpt {

struct FormatRow {
  CheckpointFormat format;
  const char* name;  // "a DCP directory", for messages

  bool (*is_at)(const PathContent& content);
  std::unique_ptr<StateSource> (*open)(const std::string& path);
  std::vector<ListedTensor> (*list)(const std::string& path);

  // nullptr stands for what a format does not have. A writer of whole tensors, and the order of its
  // plan.
  std::unique_ptr<FullWriter> (*make_writer)(const std::string& path, std::vector<TensorSpec> plan,
                                             const FullWriterOptions& options);
  std::vector<TensorSpec> (*order)(std::vector<TensorSpec> plan, const FullWriterOptions& options);
  // A writer of trees of tensors and objects, offline.
  void (*copy_tree)(const TreeCopy& copy);
  // What a directory that appears whole may replace.
  Replaceable (*may_replace)();
};

// In the order in which is_at is asked: the first that says yes is the format.
const std::vector<FormatRow>& format_table();
const FormatRow& row_of(CheckpointFormat format);

}  // namespace fsdp2::ckpt
