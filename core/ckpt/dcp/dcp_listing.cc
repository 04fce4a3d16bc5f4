#include "core/ckpt/dcp/dcp_listing.h"

#include <utility>

#include "core/base/directory.h"
#include "core/base/file.h"
#include "core/ckpt/dcp/detect.h"
#include "core/ckpt/dcp/metadata.h"
#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

namespace {

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

void add_metadata(const std::string& directory, const std::string& metadata_name,
                  std::vector<ListedTensor>& tensors) {
  const std::string path = directory + "/" + metadata_name;
  const DcpMetadata metadata =
      decode_dcp_metadata(read_text_file(path, kMaxDcpMetadataBytes), path);
  for (const DcpEntry& entry : metadata.entries()) {
    tensors.push_back(listed(entry, directory));
  }
}

}  // namespace

std::vector<ListedTensor> list_dcp(const std::string& directory) {
  std::vector<ListedTensor> tensors;
  add_metadata(directory, kDcpMetadataName, tensors);
  return tensors;
}

std::vector<ListedTensor> list_dcp_parts(const std::string& directory) {
  std::vector<ListedTensor> tensors;
  for (const std::string& name : names_in(directory)) {
    if (is_dcp_part_metadata(name)) {
      add_metadata(directory, name, tensors);
    }
  }
  return merge_by_name(std::move(tensors));
}

}  // namespace fsdp2::ckpt
