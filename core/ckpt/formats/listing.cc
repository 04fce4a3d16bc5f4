#include "core/ckpt/formats/listing.h"

#include <map>
#include <string_view>
#include <utility>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/dcp/metadata.h"
#include "core/ckpt/formats/file_names.h"
#include "core/ckpt/safetensors/dtype.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/ckpt/safetensors/sharding.h"
#include "core/ckpt/torch/archive.h"
#include "core/ckpt/torch/pth_file.h"

namespace fsdp2::ckpt {

namespace {

constexpr std::string_view kSafetensorsEnding = ".safetensors";

// A tensor in one piece.
ListedTensor whole(std::string name, at::ScalarType dtype, const std::vector<int64_t>& shape,
                   const std::string& file) {
  ListedTensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.bytes = tensor_bytes(dtype, shape);
  tensor.chunks.push_back({std::vector<int64_t>(shape.size(), 0), shape, tensor.bytes, file});
  return tensor;
}

ListedTensor whole(const SafetensorsEntry& entry, const std::string& file) {
  ListedTensor tensor = whole(entry.name, entry.dtype, entry.shape, file);
  if (!entry.checksums.empty()) {
    tensor.chunks[0].checksum = checksum_of_blocks(entry.checksums);
  }
  return tensor;
}

void list_safetensors(const std::string& path, std::vector<ListedTensor>& tensors) {
  const SafetensorsFile file(path);
  for (const SafetensorsEntry& entry : file.tensors()) {
    tensors.push_back(whole(entry, path));
  }
}

void list_shards(const std::string& path, std::vector<ListedTensor>& tensors) {
  const SafetensorsFile file(path);
  const SafetensorsShards shards = read_shards(file.metadata(), path);
  for (const SafetensorsEntry& entry : file.tensors()) {
    tensors.push_back(whole(entry, path));
    const auto shard = shards.find(entry.name);
    if (shard != shards.end()) {
      tensors.back().shape = shard->second.shape.value_or(entry.shape);
      tensors.back().chunks[0].offsets = shard->second.offsets;
    }
  }
}

void list_pth(const std::string& path, std::vector<ListedTensor>& tensors) {
  const TorchArchive archive(path);
  for (const PthTensor& found : list_tensors(archive.root())) {
    tensors.push_back(whole(found.name, found.tensor->dtype, found.tensor->shape, path));
    if (const auto checksum = archive.checksum(*found.tensor)) {
      tensors.back().chunks[0].checksum = fmt::format("crc32:{:08x}", *checksum);
    }
  }
}

ListedTensor listed(const DcpEntry& entry, const std::string& directory) {
  ListedTensor tensor;
  tensor.name = entry.name;
  if (entry.tensor) {
    tensor.dtype = entry.tensor->dtype;
    tensor.shape = entry.tensor->shape;
  }
  for (size_t i = 0; i < entry.storage.size(); ++i) {
    const DcpStorage& storage = entry.storage[i];
    ListedChunk chunk;
    chunk.bytes = storage.length;
    if (entry.tensor) {
      const Box& box = entry.tensor->chunks[i];
      chunk.offsets = box.offsets;
      chunk.sizes = box.sizes;
      chunk.bytes = tensor_bytes(entry.tensor->dtype, box.sizes);
    }
    chunk.file = directory + "/" + storage.relative_path;
    tensor.bytes += chunk.bytes;
    tensor.chunks.push_back(std::move(chunk));
  }
  return tensor;
}

void list_dcp(const std::string& directory, const std::string& metadata_name,
              std::vector<ListedTensor>& tensors) {
  const std::string path = directory + "/" + metadata_name;
  const DcpMetadata metadata =
      decode_dcp_metadata(read_text_file(path, kMaxDcpMetadataBytes), path);
  for (const DcpEntry& entry : metadata.entries()) {
    tensors.push_back(listed(entry, directory));
  }
}

// Chunks of one tensor from several ranks' metadata become one tensor's.
std::vector<ListedTensor> merged(std::vector<ListedTensor> tensors) {
  std::vector<ListedTensor> result;
  std::map<std::string, size_t> places;
  for (ListedTensor& tensor : tensors) {
    const auto [place, is_new] = places.emplace(tensor.name, result.size());
    if (is_new) {
      result.push_back(std::move(tensor));
      continue;
    }
    ListedTensor& first = result[place->second];
    first.bytes += tensor.bytes;
    first.chunks.insert(first.chunks.end(), tensor.chunks.begin(), tensor.chunks.end());
  }
  return result;
}

template <typename Wanted, typename List>
void list_files(const std::string& directory, const Wanted& is_wanted, const List& list) {
  for (const std::string& name : names_in(directory)) {
    if (is_wanted(name)) {
      list(name);
    }
  }
}

bool is_safetensors_name(const std::string& name) {
  return name.size() > kSafetensorsEnding.size() &&
         name.compare(name.size() - kSafetensorsEnding.size(), std::string::npos,
                      kSafetensorsEnding) == 0;
}

std::vector<ListedTensor> list(CheckpointFormat format, const std::string& path) {
  std::vector<ListedTensor> tensors;
  switch (format) {
    case CheckpointFormat::kDcpDirectory:
      list_dcp(path, kDcpMetadataName, tensors);
      break;
    case CheckpointFormat::kDcpPartDirectory:
      list_files(path, is_dcp_part_metadata,
                 [&](const std::string& name) { list_dcp(path, name, tensors); });
      return merged(std::move(tensors));
    case CheckpointFormat::kHuggingFaceDirectory:
      list_files(path, is_safetensors_name,
                 [&](const std::string& name) { list_safetensors(path + "/" + name, tensors); });
      break;
    case CheckpointFormat::kShardedSafetensors:
      list_files(path, is_shard_file,
                 [&](const std::string& name) { list_shards(path + "/" + name, tensors); });
      return merged(std::move(tensors));
    case CheckpointFormat::kSafetensors:
      list_safetensors(path, tensors);
      break;
    case CheckpointFormat::kPth:
      list_pth(path, tensors);
      break;
    case CheckpointFormat::kPthPerRankDirectory:
      list_files(path, is_per_rank_pth,
                 [&](const std::string& name) { list_pth(path + "/" + name, tensors); });
      break;
  }
  return tensors;
}

}  // namespace

CheckpointListing list_checkpoint(const std::string& path) {
  CheckpointListing listing{detect_format(path), {}, 0};
  listing.tensors = list(listing.format, path);
  for (const ListedTensor& tensor : listing.tensors) {
    listing.bytes += tensor.bytes;
  }
  return listing;
}

}  // namespace fsdp2::ckpt
