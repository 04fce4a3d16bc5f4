#include "core/exported/script/script_views.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "core/nn/value_map.h"

namespace fsdp2::exported {

namespace {

const c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

bool is_hooked_view(const at::Tensor& tensor) {
  return tensor.is_view() &&
         torch::autograd::impl::get_view_autograd_meta(tensor)->get_creation_meta() ==
             torch::autograd::CreationMeta::IN_CUSTOM_FUNCTION;
}

template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  nn::map_tensors(value, [&](const at::Tensor& tensor) {
    visit(tensor);
    return tensor;
  });
}

}  // namespace

MemoryOfInputs::MemoryOfInputs(const nn::Values& inputs) {
  for (const c10::IValue& input : inputs) {
    for_each_tensor(input, [this](const at::Tensor& tensor) {
      if (tensor.has_storage()) {
        memories_.emplace_back(tensor.storage().getWeakStorageImpl());
      }
    });
  }
}

c10::IValue MemoryOfInputs::copy_hooked_views(const c10::IValue& output,
                                              const nn::Module& module) const {
  std::vector<const c10::StorageImpl*> in_use;
  bool has_hooked_view = false;
  const auto add = [&](const at::Tensor& tensor) { in_use.push_back(memory_of(tensor)); };
  for_each_tensor(output, [&](const at::Tensor& tensor) {
    add(tensor);
    has_hooked_view = has_hooked_view || is_hooked_view(tensor);
  });
  if (!has_hooked_view) {
    return output;
  }
  for (const auto& memory : memories_) {
    in_use.push_back(memory._unsafe_get_target());
  }
  for (const at::Tensor& parameter : module.parameters()) {
    add(parameter);
  }
  for (const at::Tensor& buffer : module.buffers()) {
    add(buffer);
  }
  return nn::map_tensors(output, [&](const at::Tensor& tensor) {
    const bool is_alone = std::count(in_use.begin(), in_use.end(), memory_of(tensor)) == 1;
    return is_hooked_view(tensor) && is_alone ? tensor.clone() : tensor;
  });
}

}  // namespace fsdp2::exported
