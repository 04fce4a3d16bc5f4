// The forward of a scripted module as LibTorch's graph, made ready to be run in parts.
//
// What forward calls is written into the graph in its place: functions, other methods, and also the
// forwards of modules inside that are called under an `if`, in a loop or in a `with`. What is left
// are the calls of modules inside that happen in every forward and in order.
#pragma once

#include <ATen/core/class_type.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp2::exported {

// title: of the module, for messages. Errors: kUnsupported (a module that is chosen while forward
// runs, a call through an interface, code that is too large).
std::shared_ptr<torch::jit::Graph> flat_forward(const c10::ClassType& module,
                                                const std::string& title);

// The same of another method, with no call left. Error also: kUnsupported if there is none.
std::shared_ptr<torch::jit::Graph> flat_method(const c10::ClassType& type, const std::string& name,
                                               const std::string& title);

// Whether the node is such a call.
bool is_module_call(const torch::jit::Node& node);

// The dotted path, below the module, of the attribute that the value is: "" for the module itself;
// nullopt for a value that forward computes.
std::optional<std::string> attribute_path(const torch::jit::Value& value);

// Whether the node takes a parameter of a module.
bool takes_parameter(const torch::jit::Node& node);

// Calls visit with each node, those inside of others after these.
template <typename Visit>
void for_each_node(torch::jit::Block& block, const Visit& visit) {
  for (torch::jit::Node* node : block.nodes()) {
    visit(*node);
    for (torch::jit::Block* inner : node->blocks()) {
      for_each_node(*inner, visit);
    }
  }
}

}  // namespace fsdp2::exported
