// How DCP directories are told from other things, and their files from other files.
#pragma once

#include <string>

#include "core/ckpt/store/path_content.h"
#include "core/ckpt/store/pending_directory.h"

namespace fsdp2::ckpt {

inline constexpr char kDcpDirectoryFormat[] = "a DCP directory";

// __R.metadata: of one rank of torch.distributed.checkpoint without collectives.
bool is_dcp_part_metadata(const std::string& name);

bool is_dcp_directory(const PathContent& content);
// With metadata of each rank, and no .metadata.
bool is_dcp_part_directory(const PathContent& content);

// A DCP directory replaces those with nothing in them but what its writers make, ours or Python's.
Replaceable replaceable_by_dcp();

}  // namespace fsdp2::ckpt
