// What LibTorch's operators do not check although it would end the process: values of arguments
// that they take for places in memory, or that a processor cannot divide.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

namespace fsdp2::operators {

// kInvalidArgument, naming operator and argument, if the operator's inputs, the last of the stack,
// are such that it would crash. Looks at the values of tensors on the CPU alone.
void check_arguments(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

}  // namespace fsdp2::operators
