// Checkpoints from one format into another, offline, one tensor in memory at a time.
//
// Formats of whole models (safetensors, Hugging Face directories, flat .pth files) hold names of
// parameters; the others hold trees with the model under "model", at the top or in one place
// further down. From a tree to a flat format goes the model alone; the other way it is put under
// "model". A .pth file of names of parameters is a state_dict.
#pragma once

#include <cstdint>
#include <string>

#include "core/ckpt/formats/checkpoint_format.h"

namespace fsdp2::ckpt {

struct ConvertOptions {
  CheckpointFormat format = CheckpointFormat::kDcpDirectory;
  // Leaves out all but the model: in .pth files and formats of whole models by the parameters' own
  // names, in the others under "model".
  bool model_only = false;
  std::string config_path;  // kHuggingFaceDirectory: a config.json; "": that of the source
  int64_t max_file_bytes = int64_t{5} << 30;  // kHuggingFaceDirectory
  int ranks = 1;     // kPthPerRankDirectory: files, each with its rows as torch.chunk cuts them
  int64_t step = 0;  // kPthPerRankDirectory: in the files' names
};

struct ConvertResult {
  int64_t tensors = 0;
  int64_t objects = 0;
  int64_t left_out = 0;  // no place in a format of whole models; objects not read, which is logged
  int64_t bytes = 0;     // of tensors
};

// Errors: those of the readers and writers; kUnsupported for kDcpPartDirectory; kInvalidArgument if
// the source holds no model where one is needed; those of check_may_replace_file.
ConvertResult convert_checkpoint(const std::string& from, const std::string& to,
                                 const ConvertOptions& options);

}  // namespace fsdp2::ckpt
