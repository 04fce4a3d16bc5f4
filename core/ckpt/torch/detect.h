// How files of torch.save are told from other things.
#pragma once

#include <string>

#include "core/ckpt/store/path_content.h"

namespace fsdp2::ckpt {

// By how it begins.
bool is_torch_file(const PathContent& content);
// One of before torch 1.6, which is not read.
bool is_old_torch_file(const PathContent& content);
// With one file of each rank; see per_rank_files.h.
bool is_per_rank_directory(const PathContent& content);

// fsdp_sharded_cpt{step}_rank{r}.pth
bool is_per_rank_pth(const std::string& name);

// Whether the name of a file that is to be written asks for torch.save's format: .pth, .pt, .bin.
bool names_torch_file(const std::string& path);

}  // namespace fsdp2::ckpt
