// Walks over the tensors inside a module's inputs or outputs: a tensor, or lists, tuples and dicts
// of such, nested. Anything else is left alone.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>

namespace fsdp2::nn {

void visit_tensors(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit);

// A value of the same structure with each tensor replaced; containers are copied.
c10::IValue map_tensors(const c10::IValue& value,
                        const std::function<at::Tensor(const at::Tensor&)>& map);

}  // namespace fsdp2::nn
