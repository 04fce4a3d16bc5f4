// Checkpoints as one .pth file a rank, with what that rank held:
//
//   fsdp_sharded_cpt{step}_rank{r}.pth
//   {"model": {name: local tensor}, ...,
//    "fsdp2": {"rank": r, "world_size": n, "save_id": "<16 hex digits>",
//              "shards": {"model.<name>": {"shape": [..], "offsets": [..]}}}}
//
// A tensor that is not in "shards" is whole. What a run keeps under "fsdp2" itself (the states of
// random generators, the position in the data) stands beside these four keys; its world size makes
// room for that of the files. torch.load(weights_only=True) reads all of them.
//
// Each file appears as a whole, but not all of them at once: the files of one save have one
// save_id, by which a step whose files were replaced in part shows. Older files have none.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/ckpt/value/python_value.h"
#include "core/ckpt/value/state_path.h"

namespace fsdp2::ckpt {

// What a rank's file says of a tensor of at least one dim: where its rows, cut like torch.chunk,
// begin, and their sizes.
struct PerRankShard {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
};
PerRankShard shard_of(at::IntArrayRef shape, int rank, int world_size);
PythonValue describe_shard(at::IntArrayRef shape, at::IntArrayRef offsets);

inline constexpr char kPerRankKey[] = "fsdp2";
inline constexpr char kPerRankShards[] = "shards";  // below it
// Whether a path leads to what describes a rank's file, and so to no part of the checkpoint.
bool describes_rank(const StatePath& path);

// One that no other save has.
std::string make_save_id();
// The value under kPerRankKey; shards: full name -> describe_shard. save_id: "" as in older files.
PythonValue describe_rank(int rank, int world_size, PythonDict shards,
                          const std::string& save_id = "");

std::string per_rank_file_name(int64_t step, int rank);

// The files of the highest step in a directory that is complete, by rank: as many as rank 0's says,
// all of one save; those of further ranks are of an older save and left out. Files without a
// save_id count if none is missing. A higher step that is not complete is worth a warning.
// Errors: kNotFound if there is none; kCorruptData, saying what is missing, if none is complete.
std::vector<std::string> per_rank_files(const std::string& directory);

// After all `world_size` files of a step are written: removes those of further ranks, of an older
// save. What cannot be removed stays.
void remove_further_ranks(const std::string& directory, int64_t step, int world_size);

}  // namespace fsdp2::ckpt
