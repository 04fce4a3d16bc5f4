#include "core/fsdp/model_tensors.h"

#include <utility>

#include "core/nn/buffers.h"
#include "core/nn/module.h"

namespace fsdp2::fsdp {

namespace {

ModelTensor whole(std::vector<std::string> names, const at::Tensor& tensor, bool is_buffer) {
  const std::vector<int64_t> shape = tensor.sizes().vec();
  return {std::move(names), shape,   std::vector<int64_t>(shape.size(), 0),
          tensor.detach(),  nullptr, is_buffer};
}

}  // namespace

std::vector<ModelTensor> model_tensors(Unit& root) {
  const nn::Module& model = *root.modules().front();
  std::vector<ModelTensor> tensors;
  for (const ShardedParam* param : root.parameters()) {
    tensors.push_back({param->names(), param->layout().global_shape, offsets_of(param->layout()),
                       param->local_values(), param});
  }
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(model)) {
    if (!ShardedParam::manages(parameter.tensor)) {
      tensors.push_back(whole(parameter.names, parameter.tensor, /*is_buffer=*/false));
    }
  }
  for (const nn::NamedBuffer& buffer : nn::persistent_buffers(model)) {
    tensors.push_back(whole({buffer.name}, buffer.tensor, /*is_buffer=*/true));
  }
  return tensors;
}

std::vector<int64_t> offsets_of(const ShardLayout& layout) {
  std::vector<int64_t> offsets(layout.global_shape.size(), 0);
  offsets[static_cast<size_t>(layout.dim)] = layout.start;
  return offsets;
}

}  // namespace fsdp2::fsdp
