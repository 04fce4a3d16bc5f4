// What the nodes of a program run: operators that this LibTorch has, with the arguments of their
// schemas in order, or operators on numbers. All is checked before anything runs: names, types,
// number of results.
//
// Only operators of namespace aten run, and none that opens files, takes memory of others, skips
// bounds checks, or changes a tensor's memory under its users.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

#include "core/exported/operators/number_operators.h"
#include "core/exported/program/program.h"

namespace fsdp2::exported {

struct OperationInput {
  enum class As {
    kGiven,
    kTensor,  // a number, as Python makes a tensor of it: it does not change the others' dtype
    kReal,    // a number as a double
  };

  Argument argument;
  As as = As::kGiven;
};

struct Operation {
  const Node* node = nullptr;
  std::optional<c10::OperatorHandle> op;
  const NumberOperator* number = nullptr;    // if not `op`
  std::optional<at::ScalarType> only_dtype;  // if none of both: inputs[0] must have it
  bool is_copy = false;                      // copy_: of inputs[1] into inputs[0]
  std::vector<OperationInput> inputs;        // in the schema's order
};

// "program.pt2: torch.ops.aten.add.Tensor (node add_1, in module \"a.b\")"
std::string title_of(const Program& program, const Node& node);

// One for each node, which must outlive them. Errors: kUnsupported (an operator that is not there,
// or that is not run), kCorruptData (arguments that do not fit the schema).
std::vector<Operation> resolve_operations(const Program& program);

}  // namespace fsdp2::exported
