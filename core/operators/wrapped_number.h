// Numbers where an operator wants something else.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace fsdp2::operators {

// A tensor without dims on the CPU, marked as a number: it leaves the dtype of the tensors that it
// is computed with as it is. REQUIRES: an int, a bool or a double.
at::Tensor wrapped_number(const c10::IValue& number);

// As a double. REQUIRES: as above.
double as_real(const c10::IValue& number);

}  // namespace fsdp2::operators
