// The tensors inside a module's inputs or outputs: None, a tensor, or lists, tuples and dicts of
// such, nested.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <vector>

namespace fsdp2::nn {

// A value of the same structure with each defined tensor replaced; containers are copied, anything
// else is left alone.
c10::IValue map_tensors(const c10::IValue& value,
                        const std::function<at::Tensor(const at::Tensor&)>& map);

// Inputs by position, where an undefined tensor stands for None.
std::vector<c10::IValue> values_of(const std::vector<at::Tensor>& tensors);

}  // namespace fsdp2::nn
