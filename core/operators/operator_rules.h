// Which of LibTorch's operators run on behalf of others: of a program in a file, of a caller.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>

namespace fsdp2::operators {

// Whether the operator does no more than compute its results, or change the values of an argument:
// it opens no file, takes no memory of others, skips no check of bounds, and changes no tensor's
// memory under its users.
bool only_computes(const c10::FunctionSchema& schema);

// Whether the operator checks what it is given: those that LibTorch has for its own use (names that
// begin with an underscore, backwards, kernels of one device or library) trust their callers.
bool checks_its_arguments(const c10::FunctionSchema& schema);

// Whether it changes sizes, strides or the graph of an argument in place.
bool changes_views(const c10::OperatorHandle& op);

}  // namespace fsdp2::operators
