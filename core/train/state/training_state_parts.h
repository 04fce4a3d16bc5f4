// What saving and loading a run's state share: names, and the random generator.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <string>

#include "core/fsdp/fully_shard.h"

namespace fsdp2::train {

inline constexpr char kStep[] = "step";
inline constexpr char kOwn[] = "fsdp2";  // what other trainers do not have is below it

// The generator that forward draws from: the module's own, or LibTorch's on the CPU.
at::Generator generator_of(const fsdp::Unit& root);
// Its state, uint8 [n]; below "fsdp2.rng" by the rank's name.
at::Tensor generator_state(const fsdp::Unit& root);
std::string rng_name(int rank);

}  // namespace fsdp2::train
