// Files that the ranks of other trainers have written with torch.save, one each. Their names differ
// by a number behind "rank" alone:
//
//   model_world_size_2_rank_0.pt       verl, optim_world_size_2_rank_0.pt beside it
//   pytorch_model_fsdp_0_rank0.bin     accelerate, optimizer_0_rank0.bin beside it
//   checkpoint_rank0.pt                a program of one's own
//
// Each tensor in them that is a DTensor says which part it is; others are whole, and the same in
// all files. Our own files are not among them (per_rank_files.h).
#pragma once

#include <string>
#include <vector>

namespace fsdp2::ckpt {

struct RankFileSet {
  std::string stem;                // what the names begin with, "model_world_size_2_"
  std::vector<std::string> files;  // paths, by rank
};

bool is_rank_file(const std::string& name);

// By stem. Errors: kCorruptData for ranks whose files are missing, also by the world size in the
// name; kIo.
std::vector<RankFileSet> find_rank_files(const std::string& directory);

}  // namespace fsdp2::ckpt
