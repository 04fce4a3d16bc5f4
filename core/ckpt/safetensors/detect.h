// How safetensors files, and directories of them, are told from other things.
#pragma once

#include "core/ckpt/store/path_content.h"
#include "core/ckpt/store/pending_directory.h"

namespace fsdp2::ckpt {

inline constexpr char kShardedSafetensorsFormat[] = "a directory of safetensors files of each rank";

// By how it begins: the format has no mark of its own.
bool is_safetensors_file(const PathContent& content);
// With files of each rank; see sharding.h.
bool is_sharded_directory(const PathContent& content);

// They replace directories with nothing in them but such files.
Replaceable replaceable_by_shards();

}  // namespace fsdp2::ckpt
