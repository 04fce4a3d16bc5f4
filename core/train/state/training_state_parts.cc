#include "core/train/state/training_state_parts.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "core/nn/module.h"
#include "core/nn/own_generator.h"

namespace fsdp2::train {

std::vector<ModelTensor> model_tensors(fsdp::Unit& root) {
  std::vector<ModelTensor> tensors;
  for (const fsdp::ShardedParam* param : root.parameters()) {
    tensors.push_back({{param->names(), param->requires_grad()},
                       param->layout().global_shape,
                       offsets_of(param->layout()),
                       param->local_values()});
  }
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*root.modules().front())) {
    if (!fsdp::ShardedParam::manages(parameter.tensor)) {
      const std::vector<int64_t> shape = parameter.tensor.sizes().vec();
      tensors.push_back({{parameter.names, false},
                         shape,
                         std::vector<int64_t>(shape.size(), 0),
                         parameter.tensor.detach()});
    }
  }
  return tensors;
}

std::vector<int64_t> offsets_of(const fsdp::ShardLayout& layout) {
  std::vector<int64_t> offsets(layout.global_shape.size(), 0);
  offsets[static_cast<size_t>(layout.dim)] = layout.start;
  return offsets;
}

at::Generator generator_of(const fsdp::Unit& root) {
  return nn::own_generator_of(*root.modules().front())
      .value_or(at::detail::getDefaultCPUGenerator());
}

at::Tensor generator_state(const fsdp::Unit& root) {
  at::Generator generator = generator_of(root);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

std::string rng_name(int rank) { return std::to_string(rank); }

}  // namespace fsdp2::train
