// What the next numbers of a random generator depend on, as a tensor: PyTorch's
// Generator.get_state().
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace fsdp2::nn {

// A copy.
at::Tensor state_of(at::Generator generator);
// REQUIRES: a state of such a generator.
void set_state(at::Generator generator, const at::Tensor& state);

// Whether a generator on the CPU can go on from this tensor, which a file or a caller has given.
bool is_generator_state(const at::Tensor& state);

}  // namespace fsdp2::nn
