// A program's own inputs: what the export has fixed of their dtypes and sizes.
#pragma once

#include "core/exported/program/program.h"
#include "core/nn/module.h"

namespace fsdp2::exported {

// Throws kInvalidArgument for inputs that the program was not exported for: their number, a dtype,
// a rank, a size, two sizes that must be equal, one out of its range. Otherwise it would compute
// something else than the model, or fail deep inside.
void check_program_inputs(const Program& program, const nn::Values& inputs);

}  // namespace fsdp2::exported
