#include "core/train/state/training_state_parts.h"

#include <ATen/CPUGeneratorImpl.h>

#include "core/nn/own_generator.h"
#include "core/nn/random/generator_state.h"

namespace fsdp2::train {

at::Generator generator_of(const fsdp::Unit& root) {
  return nn::own_generator_of(*root.modules().front())
      .value_or(at::detail::getDefaultCPUGenerator());
}

at::Tensor generator_state(const fsdp::Unit& root) { return nn::state_of(generator_of(root)); }

std::string rng_name(int rank) { return std::to_string(rank); }

}  // namespace fsdp2::train
