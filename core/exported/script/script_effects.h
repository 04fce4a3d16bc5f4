// What a scripted forward does besides computing its output, found in its graph before it runs.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <string>

namespace fsdp2::exported {

struct ScriptEffects {
  bool draws_random_numbers = false;  // from the default generators
  bool changes_in_place = false;      // something, if only what it has made itself
  // What it changes in place of what was there before; "": nothing.
  std::string changed_attribute;  // such as a running mean
  std::string changed_input;
};

// title: of the module, for messages. Errors: kUnsupported for operators that do more than compute
// (files, other threads, memory of others), those of other libraries, attributes that are assigned,
// parameters that are changed in place, which only an optimizer may, and those that are kept for
// after the call, by whatever containers.
ScriptEffects find_effects(torch::jit::Graph& graph, const std::string& title);

}  // namespace fsdp2::exported
