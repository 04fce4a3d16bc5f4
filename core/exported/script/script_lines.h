// A script as lines that are equal for two scripts that compute the same (nn/computation.h). Names
// that the compiler of Python's side gave to values and classes are left out.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "core/exported/script/script_objects.h"
#include "core/nn/computation.h"

namespace fsdp2::exported {

nn::ComputationLines lines_of(const std::shared_ptr<torch::jit::Graph>& code);
// What the object of a module holds, without its parameters, the modules inside, and whether it is
// in training mode.
nn::ComputationLines lines_of(const ScriptObject& object);

}  // namespace fsdp2::exported
