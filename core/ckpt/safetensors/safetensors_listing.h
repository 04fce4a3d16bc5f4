// Lists the tensors of safetensors files, without their values.
#pragma once

#include <string>
#include <vector>

#include "core/ckpt/state/listed_tensor.h"

namespace fsdp2::ckpt {

// Errors: those of SafetensorsFile and read_shards.
std::vector<ListedTensor> list_safetensors(const std::string& path);
// The same for a directory of each rank's files.
std::vector<ListedTensor> list_shards(const std::string& directory);

}  // namespace fsdp2::ckpt
