#include "core/ckpt/state/listed_tensor.h"

#include <cstddef>
#include <map>
#include <utility>

#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

ListedTensor listed_whole(std::string name, at::ScalarType dtype, const std::vector<int64_t>& shape,
                          const std::string& file) {
  ListedTensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.bytes = tensor_bytes(dtype, shape);
  tensor.chunks.push_back({std::vector<int64_t>(shape.size(), 0), shape, tensor.bytes, file});
  return tensor;
}

std::vector<ListedTensor> merge_by_name(std::vector<ListedTensor> tensors) {
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

}  // namespace fsdp2::ckpt
