#include "core/ckpt/state/state_dict.h"

#include <utility>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

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

void StateDict::check_has_memory() const {
  for (const StateTensor& tensor : tensors) {
    FSDP2_CHECK(tensor.local.numel() == 0 || tensor.local.storage().nbytes() > 0, Code::kWrongState,
                "tensor {} has no memory: it has no values yet, or they were freed after use",
                printable_name(tensor.name));
  }
}

}  // namespace fsdp2::ckpt
