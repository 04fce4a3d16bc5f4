// What a path holds, told by what is there and how it begins, not by its name.
#pragma once

#include <string>

#include "core/ckpt/store/pending_directory.h"

namespace fsdp2::ckpt {

enum class CheckpointFormat {
  kDcpDirectory,          // .metadata and __R_N.distcp
  kDcpPartDirectory,      // __R.metadata of each rank and no .metadata
  kModelAndOptimizer,     // side by side, as accelerate and verl have them
  kHuggingFaceDirectory,  // model.safetensors, or an index and shards
  kShardedSafetensors,    // a directory with shard-R-model-N-of-M.safetensors of each rank
  kSafetensors,           // one file
  kPth,                   // one torch.save archive
  kPthPerRankDirectory,   // fsdp_sharded_cpt{step}_rank{r}.pth
};

// "a DCP directory", for messages.
const char* format_name(CheckpointFormat format);

// Which directories a checkpoint of this format may replace. A model directory
// (kHuggingFaceDirectory) replaces any: its writer keeps what else is there.
Replaceable replaceable_by(CheckpointFormat format);

// The format of whole tensors that the name of a file to write stands for: .pth, .pt and .bin files
// are torch.save's, all others safetensors.
CheckpointFormat full_format_of(const std::string& path);

// Errors: kNotFound if nothing is there; kUnsupported, saying what was looked for, if it is none of
// them (a torch.save file of before 1.6 is told apart); kIo.
CheckpointFormat detect_format(const std::string& path);

}  // namespace fsdp2::ckpt
