#include "core/nn/module.h"

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

#include "core/base/error.h"

namespace fsdp2::nn {

c10::IValue Module::operator()(Values inputs) {
  const auto plain = [this](Values given) { return forward(std::move(given)); };
  const auto wrapper = wrapper_;  // forward may take it away
  if (wrapper == nullptr) {
    return run(std::move(inputs), plain);
  }
  return run(std::move(inputs),
             [&](Values given) { return wrapper->run(*this, plain, std::move(given)); });
}

c10::IValue Module::run(Values inputs, const ForwardBody& body) {
  if (hooks_.empty()) {
    return body(std::move(inputs));
  }
  const auto hooks = hooks_;  // a hook may add or remove hooks
  size_t open = 0;            // hooks [0, open) have run pre_forward and wait for their end
  try {
    for (; open < hooks.size(); ++open) {
      hooks[open]->pre_forward(*this, inputs);
    }
    c10::IValue output = body(std::move(inputs));
    while (open > 0) {
      --open;
      hooks[open]->post_forward(*this, output);
    }
    return output;
  } catch (...) {
    while (open > 0) {
      --open;
      hooks[open]->forward_failed(*this);
    }
    throw;
  }
}

bool Module::is_of_class(const std::string& name) const {
  return name == kind_ ||
         std::find(class_aliases_.begin(), class_aliases_.end(), name) != class_aliases_.end();
}

bool Module::is_of_any_class(const std::vector<std::string>& names) const {
  return std::any_of(names.begin(), names.end(),
                     [this](const std::string& name) { return is_of_class(name); });
}

void Module::remove_hooks(const ForwardHooks* hooks) {
  hooks_.erase(std::remove_if(hooks_.begin(), hooks_.end(),
                              [hooks](const auto& entry) { return entry.get() == hooks; }),
               hooks_.end());
}

std::vector<std::pair<std::string, std::shared_ptr<Module>>> Module::child_modules() const {
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children;
  for (const auto& child : named_children()) {
    if (auto module = std::dynamic_pointer_cast<Module>(child.value())) {
      children.emplace_back(child.key(), std::move(module));
    }
  }
  return children;
}

at::Tensor deferred_parameter(at::IntArrayRef shape, at::ScalarType dtype, at::Device device) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t size : shape) {
    FSDP2_CHECK(size >= 0 && !__builtin_mul_overflow(bytes, size, &bytes), Code::kInvalidArgument,
                "a parameter cannot have the shape {}: negative or too large",
                fmt::join(shape, " x "));
  }
  at::Tensor parameter = at::empty({0}, at::device(device).dtype(dtype));
  parameter.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return parameter.set_requires_grad(true);
}

bool has_no_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.numel() > 0 &&
         tensor.storage().nbytes() == 0;
}

void resize_storage(const at::Tensor& tensor, int64_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  // Storages over foreign memory (TorchScript, from_blob) have no allocator of their own, and those
  // on meta may have been made before somebody began to count what is on meta.
  const bool has_allocator = storage->allocator() != nullptr && !tensor.is_meta();
  c10::Allocator* allocator =
      has_allocator ? storage->allocator() : c10::GetAllocator(storage->device_type());
  const c10::OptionalDeviceGuard guard(tensor.device());
  storage->set_data_ptr_noswap(allocator->allocate(0));  // first, so that old and new never coexist
  storage->set_nbytes(0);
  if (bytes > 0) {
    storage->set_data_ptr_noswap(allocator->allocate(static_cast<size_t>(bytes)));
    storage->set_nbytes(static_cast<size_t>(bytes));
  }
}

MemoryForValues::MemoryForValues(const at::Tensor& tensor) : tensor_(tensor) {
  resize_storage(tensor, tensor.numel() * static_cast<int64_t>(tensor.element_size()));
}

MemoryForValues::~MemoryForValues() {
  if (tensor_.defined()) {
    resize_storage(tensor_, 0);
  }
}

void materialize(Module& root, ParameterSource& source) {
  for (const NamedParameter& parameter : named_unique_parameters(root)) {
    const at::Tensor& tensor = parameter.tensor;
    if (!has_no_memory(tensor)) {
      continue;
    }
    MemoryForValues memory(tensor);
    const at::Tensor values = tensor.variable_data();  // a version counter of its own
    source.read(name_in(source, parameter.names), tensor.sizes(), 0,
                values.dim() == 0 ? values.view({1}) : values);
    memory.keep();
  }
}

std::vector<NamedParameter> named_unique_parameters(const torch::nn::Module& root) {
  std::vector<NamedParameter> unique;
  std::unordered_map<const c10::TensorImpl*, size_t> seen;
  for (const auto& parameter : root.named_parameters()) {
    const auto [entry, is_new] =
        seen.emplace(parameter.value().unsafeGetTensorImpl(), unique.size());
    if (is_new) {
      unique.push_back({{parameter.key()}, parameter.value()});
    } else {
      unique[entry->second].names.push_back(parameter.key());
    }
  }
  return unique;
}

}  // namespace fsdp2::nn
