// What saving and loading a run's state share: names, and tensors as checkpoints see them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/ckpt/state/state_names.h"
#include "core/fsdp/fully_shard.h"

namespace fsdp2::train {

inline constexpr char kStep[] = "step";
inline constexpr char kOwn[] = "fsdp2";  // what other trainers do not have is below it

// A parameter as checkpoints see it, sharded or, if fully_shard was told to ignore it, whole; or a
// persistent buffer, which is whole on every rank.
struct ModelTensor {
  ckpt::ParameterNames names;
  std::vector<int64_t> shape;
  std::vector<int64_t> offsets;
  at::Tensor local;
};

// The sharded ones first, in the order of root.parameters().
std::vector<ModelTensor> model_tensors(fsdp::Unit& root);

// Where the local shard begins in the parameter.
std::vector<int64_t> offsets_of(const fsdp::ShardLayout& layout);

// The generator that forward draws from: the module's own, or LibTorch's on the CPU.
at::Generator generator_of(const fsdp::Unit& root);
// Its state, uint8 [n]; below "fsdp2.rng" by the rank's name.
at::Tensor generator_state(const fsdp::Unit& root);
std::string rng_name(int rank);

}  // namespace fsdp2::train
