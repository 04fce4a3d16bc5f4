// The tensors inside a module's inputs or outputs: a tensor, or lists, tuples and dicts of such,
// nested.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>

namespace fsdp2::nn {

// A value of the same structure with each defined tensor replaced; containers are copied, anything
// else is left alone.
c10::IValue map_tensors(const c10::IValue& value,
                        const std::function<at::Tensor(const at::Tensor&)>& map);

}  // namespace fsdp2::nn
