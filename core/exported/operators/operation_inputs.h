// Arguments of nodes in the types that an operator's schema asks for.
#pragma once

#include <ATen/core/function_schema.h>

#include "core/exported/operators/operations.h"
#include "core/exported/program/program.h"

namespace fsdp2::exported {

bool is_tensor(const Program& program, const Argument& argument);
// A number that is known, or a value that is one.
bool is_number(const Program& program, const Argument& argument);

// Error: kCorruptData for an argument that does not fit, naming it.
OperationInput fit_input(const Program& program, const Argument& argument,
                         const c10::Argument& formal);

}  // namespace fsdp2::exported
