// The tensors of a sharded model as checkpoints see them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/fsdp/unit.h"

namespace fsdp2::fsdp {

// A sharded parameter; or a tensor that is whole on every rank: a parameter that fully_shard was
// told to ignore, or a persistent buffer.
struct ModelTensor {
  std::vector<std::string> names;  // a tied parameter has several
  std::vector<int64_t> shape;      // of the whole
  std::vector<int64_t> offsets;    // of what this rank holds
  at::Tensor local;
  const ShardedParam* param = nullptr;  // null: whole on every rank
  bool is_buffer = false;

  const std::string& name() const { return names.front(); }
  bool is_trainable() const { return param != nullptr && param->requires_grad(); }
};

// The sharded ones first, in the order of root.parameters(). What is written into `local` is the
// model's.
std::vector<ModelTensor> model_tensors(Unit& root);

// Where the local shard begins in the parameter.
std::vector<int64_t> offsets_of(const ShardLayout& layout);

}  // namespace fsdp2::fsdp
