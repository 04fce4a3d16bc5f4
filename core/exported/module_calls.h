// The calls of modules in a program, as a tree: which nodes and further calls each runs in order,
// and what goes in and out. A call is contiguous: a module that is entered again is called again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/exported/program/program.h"

namespace fsdp2::exported {

struct CallItem {
  bool is_call = false;
  int32_t index = 0;  // of a node, or of a call
};

struct ModuleCall {
  std::string path;
  int32_t parent = -1;
  int32_t depth = 0;
  std::vector<CallItem> items;
  // Values from outside that are used inside, and those from inside that are used outside; of what
  // is bound before the program runs (parameters, buffers, constants) neither.
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
};

// [0] is the root's, with the program's own inputs and outputs. Error: kUnsupported for more calls
// than a program has.
std::vector<ModuleCall> find_module_calls(const Program& program);

// By node: the innermost call that it is in.
std::vector<int32_t> calls_of_nodes(const Program& program, const std::vector<ModuleCall>& calls);

// Whether the nodes, ascending, may run where the last of them does: each is its call's own, or all
// that a call directly inside that one runs are among them and read nothing that is bound.
bool may_join(const Program& program, const std::vector<ModuleCall>& calls,
              const std::vector<int32_t>& call_of_node, const std::vector<bool>& is_bound,
              const std::vector<int32_t>& nodes);

// By value: the call whose node makes it; -1 for what is there before the program runs.
std::vector<int32_t> calls_of_values(const Program& program,
                                     const std::vector<int32_t>& call_of_node);

// All values that the node reads, in the order of its inputs; kNoValue left out.
std::vector<ValueId> values_read(const Node& node);

// By value: whether it is bound before the program runs.
std::vector<bool> bound_values(const Program& program);

}  // namespace fsdp2::exported
