// Nodes of a program whose work one of our own operators does, with fewer passes over memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "core/exported/fusions/dataflow.h"
#include "core/exported/operators/operations.h"
#include "core/exported/program/program.h"

namespace fsdp2::exported {

struct Fusion {
  // The result of the last node, from `inputs`. Undefined where the nodes themselves must run, as
  // the operator would compute something else: what types and sizes tensors have is only known when
  // they are there.
  using Compute = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

  std::vector<int32_t> nodes;  // ascending; those before the last are there for it alone
  std::vector<ValueId> inputs;
  std::vector<ValueId> relied_on;  // further values whose makers show that the pattern is there
  Compute compute;
};

using Match = std::function<std::optional<Fusion>(const Dataflow& flow, const Operation& last)>;

struct Pattern {
  std::string_view last;  // the operator of the last node: "mul.Tensor"
  Match match;
};

}  // namespace fsdp2::exported
