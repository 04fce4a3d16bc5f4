#include "core/ckpt/torch/pth_listing.h"

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <utility>

#include "core/base/directory.h"
#include "core/ckpt/torch/archive.h"
#include "core/ckpt/torch/detect.h"
#include "core/ckpt/torch/pth_file.h"

namespace fsdp2::ckpt {

namespace {

void add_archive(const std::string& path, std::vector<ListedTensor>& tensors) {
  const TorchArchive archive(path);
  for (const PthTensor& found : list_tensors(archive.root())) {
    tensors.push_back(listed_whole(found.name, found.tensor->dtype, found.tensor->shape, path));
    if (const auto& part = found.tensor->part) {
      tensors.back().shape = part->shape;
      tensors.back().chunks[0].offsets = part->offsets;
    }
    if (const auto checksum = archive.checksum(*found.tensor)) {
      tensors.back().chunks[0].checksum = fmt::format("crc32:{:08x}", *checksum);
    }
  }
}

}  // namespace

std::vector<ListedTensor> list_pth(const std::string& path) {
  std::vector<ListedTensor> tensors;
  add_archive(path, tensors);
  return tensors;
}

std::vector<ListedTensor> list_rank_files(const std::vector<std::string>& files) {
  std::vector<ListedTensor> chunks;
  std::set<std::pair<std::string, std::vector<int64_t>>> places;
  for (const std::string& file : files) {
    std::vector<ListedTensor> own;
    add_archive(file, own);
    for (ListedTensor& tensor : own) {
      if (places.emplace(tensor.name, tensor.chunks[0].offsets).second) {
        chunks.push_back(std::move(tensor));
      }
    }
  }
  return merge_by_name(std::move(chunks));
}

std::vector<ListedTensor> list_per_rank_pth(const std::string& directory) {
  std::vector<ListedTensor> tensors;
  for (const std::string& name : names_in(directory)) {
    if (is_per_rank_pth(name)) {
      add_archive(directory + "/" + name, tensors);
    }
  }
  return tensors;
}

}  // namespace fsdp2::ckpt
