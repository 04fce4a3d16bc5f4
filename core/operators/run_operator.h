// Calls of LibTorch's operators.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace fsdp2::operators {

// Takes the operator's inputs off the stack and leaves its results there. What it refuses is an
// Error, mostly kInvalidArgument. What is no std::exception passes: with it, activation
// checkpointing stops a second run.
void run_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace fsdp2::operators
