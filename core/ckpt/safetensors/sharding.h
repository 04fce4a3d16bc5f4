// Directories of safetensors files in which each rank has its chunks of tensors, as Python's
// HuggingFaceStorageWriter(save_distributed=True) lays them out:
//
//   shard-00002-model-00001-of-00003.safetensors     rank 1's chunks of the tensors of file 1 of 3
//
//   "__metadata__": {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": <a JSON text>}
//
//   {"w": {"saved_offsets": [2, 0], "shape": [4, 4]}}     the text
//
// "shape", of the whole tensor, is ours: Python takes the end of the last chunk, so that a file
// that is missing would not show.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp2::ckpt {

// Where a file's tensor lies in the whole.
struct SafetensorsShard {
  std::vector<int64_t> offsets;
  std::optional<std::vector<int64_t>> shape;
};

using SafetensorsShards = std::map<std::string, SafetensorsShard>;  // by name

// Name of a tensor -> number of the file that it is written to, from 1 on.
using FileNumbers = std::map<std::string, int64_t>;

// rank, number: from 0 and from 1.
std::string shard_file_name(int rank, int64_t number, int64_t count);
bool is_shard_file(const std::string& name);

// The metadata of a file with these shards.
std::map<std::string, std::string> shard_metadata(const SafetensorsShards& shards);

// What a file's metadata says; none if it says nothing: its tensors are whole. kCorruptData for
// anything that is not such a text; `file` is for messages.
SafetensorsShards read_shards(const std::map<std::string, std::string>& metadata,
                              const std::string& file);

}  // namespace fsdp2::ckpt
