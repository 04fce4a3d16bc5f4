// Lists the tensors of .pth files, without their values.
#pragma once

#include <string>
#include <vector>

#include "core/ckpt/state/listed_tensor.h"

namespace fsdp2::ckpt {

// Errors: those of TorchArchive.
std::vector<ListedTensor> list_pth(const std::string& path);
// The same for all ranks' files in a directory, one after the other.
std::vector<ListedTensor> list_per_rank_pth(const std::string& directory);
// Those of files that other trainers' ranks have written; what several of them hold once.
std::vector<ListedTensor> list_rank_files(const std::vector<std::string>& files);

}  // namespace fsdp2::ckpt
