#include "core/ckpt/safetensors/safetensors_listing.h"

#include <utility>

#include "core/base/directory.h"
#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/ckpt/safetensors/sharding.h"

namespace fsdp2::ckpt {

namespace {

ListedTensor listed(const SafetensorsEntry& entry, const std::string& file) {
  ListedTensor tensor = listed_whole(entry.name, entry.dtype, entry.shape, file);
  if (!entry.checksums.empty()) {
    tensor.chunks[0].checksum = checksum_of_blocks(entry.checksums);
  }
  return tensor;
}

void add_shards(const std::string& path, std::vector<ListedTensor>& tensors) {
  const SafetensorsFile file(path);
  const SafetensorsShards shards = read_shards(file.metadata(), path);
  for (const SafetensorsEntry& entry : file.tensors()) {
    tensors.push_back(listed(entry, path));
    const auto shard = shards.find(entry.name);
    if (shard != shards.end()) {
      tensors.back().shape = shard->second.shape.value_or(entry.shape);
      tensors.back().chunks[0].offsets = shard->second.offsets;
    }
  }
}

}  // namespace

std::vector<ListedTensor> list_safetensors(const std::string& path) {
  const SafetensorsFile file(path);
  std::vector<ListedTensor> tensors;
  for (const SafetensorsEntry& entry : file.tensors()) {
    tensors.push_back(listed(entry, path));
  }
  return tensors;
}

std::vector<ListedTensor> list_shards(const std::string& directory) {
  std::vector<ListedTensor> tensors;
  for (const std::string& name : names_in(directory)) {
    if (is_shard_file(name)) {
      add_shards(directory + "/" + name, tensors);
    }
  }
  return merge_by_name(std::move(tensors));
}

}  // namespace fsdp2::ckpt
