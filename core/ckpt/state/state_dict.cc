#include "core/ckpt/state/state_dict.h"

#include <utility>

namespace fsdp2::ckpt {

void StateDict::add_tensor(StatePath path, std::vector<int64_t> shape, std::vector<int64_t> offsets,
                           at::Tensor local) {
  std::string name = name_of(path);
  tensors.push_back(
      {std::move(name), std::move(path), std::move(shape), std::move(offsets), std::move(local)});
}

void StateDict::add_whole(StatePath path, at::Tensor tensor) {
  const std::vector<int64_t> shape = tensor.sizes().vec();
  add_tensor(std::move(path), shape, std::vector<int64_t>(shape.size(), 0), std::move(tensor));
}

void StateDict::add_object(StatePath path, PythonValue value) {
  std::string name = name_of(path);
  objects.push_back({std::move(name), std::move(path), std::move(value)});
}

}  // namespace fsdp2::ckpt
