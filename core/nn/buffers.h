// Buffers: tensors that belong to modules and are no parameters, such as tables and running means.
// Sharding leaves them whole on every rank, and each rank has its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/nn/module.h"

namespace fsdp2::nn {

// What a module has that keeps some of its buffers out of checkpoints. Those of other modules are
// all persistent.
class TransientBuffers {
 public:
  virtual ~TransientBuffers() = default;

  // name: of one of its own.
  virtual bool is_transient(const std::string& name) const = 0;
};

struct NamedBuffer {
  std::string name;  // dotted
  at::Tensor tensor;
};

// The buffers at and below the module that checkpoints hold, in registration order.
std::vector<NamedBuffer> persistent_buffers(const Module& root);

}  // namespace fsdp2::nn
