// Lists what DCP directories hold, from their metadata alone.
#pragma once

#include <string>
#include <vector>

#include "core/ckpt/state/listed_tensor.h"

namespace fsdp2::ckpt {

// Errors: kNotFound, kIo; those of decode_dcp_metadata.
std::vector<ListedTensor> list_dcp(const std::string& directory);
// The same for a directory in which each rank has metadata of its own.
std::vector<ListedTensor> list_dcp_parts(const std::string& directory);

}  // namespace fsdp2::ckpt
