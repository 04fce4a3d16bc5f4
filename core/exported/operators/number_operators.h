// The operators of a program that compute with sizes and other numbers, with Python's meaning. They
// are no operators of LibTorch: "_operator.floordiv", "torch.sym_max", "math.trunc".
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <string>

namespace fsdp2::exported {

struct NumberOperator {
  const char* target;
  size_t inputs;
  // Each input is an int, a bool or a double. Errors: kInvalidArgument (overflow, division by 0).
  c10::IValue (*run)(c10::ArrayRef<c10::IValue> inputs);
};

// nullptr if there is none of that name.
const NumberOperator* find_number_operator(const std::string& target);

}  // namespace fsdp2::exported
