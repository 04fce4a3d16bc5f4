// A program as lines that are equal for two programs that compute the same (nn/computation.h).
// Values have their numbers in place of the names that the exporting Python gave them.
#pragma once

#include "core/exported/program/program.h"
#include "core/nn/computation.h"

namespace fsdp2::exported {

// Without the values of buffers and constants.
nn::ComputationLines lines_of(const Program& program);

}  // namespace fsdp2::exported
