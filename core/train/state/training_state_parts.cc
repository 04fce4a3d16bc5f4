#include "core/train/state/training_state_parts.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <utility>

#include "core/nn/buffers.h"
#include "core/nn/module.h"
#include "core/nn/own_generator.h"

namespace fsdp2::train {

namespace {

ModelTensor whole(ckpt::ParameterNames names, const at::Tensor& tensor) {
  const std::vector<int64_t> shape = tensor.sizes().vec();
  return {std::move(names), shape, std::vector<int64_t>(shape.size(), 0), tensor.detach()};
}

}  // namespace

std::vector<ModelTensor> model_tensors(fsdp::Unit& root) {
  const nn::Module& model = *root.modules().front();
  std::vector<ModelTensor> tensors;
  for (const fsdp::ShardedParam* param : root.parameters()) {
    tensors.push_back({{param->names(), param->requires_grad()},
                       param->layout().global_shape,
                       offsets_of(param->layout()),
                       param->local_values()});
  }
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(model)) {
    if (!fsdp::ShardedParam::manages(parameter.tensor)) {
      tensors.push_back(whole({parameter.names, false}, parameter.tensor));
    }
  }
  for (const nn::NamedBuffer& buffer : nn::persistent_buffers(model)) {
    tensors.push_back(whole({{buffer.name}, false, /*is_buffer=*/true}, buffer.tensor));
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
