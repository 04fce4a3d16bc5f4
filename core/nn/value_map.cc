#include "core/nn/value_map.h"

#include <utility>
#include <vector>

namespace fsdp2::nn {

c10::IValue map_tensors(const c10::IValue& value,
                        const std::function<at::Tensor(const at::Tensor&)>& map) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? c10::IValue(map(value.toTensor())) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      mapped.push_back(map(tensor));
    }
    return mapped;
  }
  if (value.isList()) {
    c10::List<c10::IValue> mapped(value.toList().elementType());
    for (const c10::IValue& element : value.toListRef()) {
      mapped.push_back(map_tensors(element, map));
    }
    return mapped;
  }
  if (value.isTuple()) {
    std::vector<c10::IValue> mapped;
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      mapped.push_back(map_tensors(element, map));
    }
    return c10::ivalue::Tuple::create(std::move(mapped));
  }
  if (value.isGenericDict()) {
    const auto& dict = value.toGenericDict();
    c10::Dict<c10::IValue, c10::IValue> mapped(dict.keyType(), dict.valueType());
    for (const auto& entry : dict) {
      mapped.insert(entry.key(), map_tensors(entry.value(), map));
    }
    return mapped;
  }
  return value;
}

std::vector<c10::IValue> values_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::IValue> values;
  values.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    values.push_back(tensor.defined() ? c10::IValue(tensor) : c10::IValue());
  }
  return values;
}

}  // namespace fsdp2::nn
