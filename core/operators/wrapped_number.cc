#include "core/operators/wrapped_number.h"

#include <ATen/ops/scalar_tensor.h>

namespace fsdp2::operators {

at::Tensor wrapped_number(const c10::IValue& number) {
  const at::ScalarType dtype = number.isDouble() ? at::kDouble
                               : number.isBool() ? at::kBool
                                                 : at::kLong;
  at::Tensor tensor = at::scalar_tensor(number.toScalar(), at::device(at::kCPU).dtype(dtype));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

double as_real(const c10::IValue& number) {
  return number.isDouble() ? number.toDouble()
         : number.isBool() ? static_cast<double>(number.toBool())
                           : static_cast<double>(number.toInt());
}

}  // namespace fsdp2::operators
