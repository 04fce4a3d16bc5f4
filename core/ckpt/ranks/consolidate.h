// Tensors that the files of several ranks hold in chunks, put together into a model directory.
//
//   consolidate_safetensors(*team, "out/shards", "out/model", {config_json});
#pragma once

#include <string>

#include "core/ckpt/hugging_face/model_files.h"
#include "core/comm/team.h"

namespace fsdp2::ckpt {

// Collective; the outcome is the same on all ranks. `from`: a checkpoint of any format, whose
// tensors are all written (objects are left out). Each rank writes whole files, with one tensor in
// memory at a time; rank 0 adds config.json and the index. The directory appears as a whole; kIo if
// something is there already.
void consolidate_safetensors(Team& team, const std::string& from, const std::string& to,
                             const FullWriterOptions& options);

}  // namespace fsdp2::ckpt
