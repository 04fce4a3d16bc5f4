#include "core/exported/script/script_graph.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::exported {

namespace {

namespace attr = torch::jit::attr;
namespace prim = torch::jit::prim;
using torch::jit::Block;
using torch::jit::Node;

constexpr size_t kMaxNodes = size_t{1} << 20;
constexpr int kMaxBlocks = 500;  // LibTorch calls itself for each, also when it runs them

bool is_of_module(const c10::Type& type) {
  return type.kind() == c10::TypeKind::ClassType && type.expectRef<c10::ClassType>().is_module();
}

class Flattener {
 public:
  Flattener(std::shared_ptr<torch::jit::Graph> graph, const std::string& title)
      : graph_(std::move(graph)), title_(title) {}

  // leave_calls: those of modules that happen in every run.
  void flatten(bool leave_calls) { visit(*graph_->block(), leave_calls); }

 private:
  void visit(Block& block, bool is_top) {
    FSDP2_CHECK(++depth_ <= kMaxBlocks, Code::kUnsupported,
                "{}: its forward has more than {} blocks inside one another", title_, kMaxBlocks);
    int open = 0;  // `with` regions
    for (Node* node = *block.nodes().begin(); node != block.return_node();) {
      FSDP2_CHECK(++visited_ <= kMaxNodes, Code::kUnsupported,
                  "{}: its forward has more than {} nodes", title_, kMaxNodes);
      open += node->kind() == prim::Enter ? 1 : node->kind() == prim::Exit ? -1 : 0;
      Node* before = node->prev();
      if (torch::jit::GraphFunction* callee = find_callee(*node, is_top && open == 0)) {
        put_in_place(*node, *callee);
        node = before->next();
        continue;
      }
      for (Block* inner : node->blocks()) {
        visit(*inner, /*is_top=*/false);
      }
      node = node->next();
    }
    --depth_;
  }

  // What the node calls, unless that stays a call.
  torch::jit::GraphFunction* find_callee(Node& node, bool may_stay) const {
    if (node.kind() == prim::CallFunction) {
      const auto type = node.input(0)->type()->cast<c10::FunctionType>();
      return type == nullptr ? nullptr : torch::jit::tryToGraphFunction(*type->function());
    }
    if (node.kind() != prim::CallMethod) {
      return nullptr;
    }
    const std::string& name = node.s(attr::name);
    const auto type = node.input(0)->type()->cast<c10::ClassType>();
    FSDP2_CHECK(type != nullptr, Code::kUnsupported,
                "{}: calls {} of {}: expected modules that are known before forward runs, found an "
                "interface",
                title_, ckpt::printable_name(name), node.input(0)->type()->str());
    const auto path = attribute_path(*node.input(0));
    FSDP2_CHECK(path || !type->is_module(), Code::kUnsupported,
                "{}: calls a {} that it chooses while it runs: expected one at a fixed place",
                title_, type->str());
    if (may_stay && type->is_module() && name == "forward" && !path->empty()) {
      return nullptr;
    }
    torch::jit::Function* method = type->findMethod(name);
    FSDP2_CHECK(method != nullptr, Code::kUnsupported, "{}: {} has no method {}", title_,
                type->str(), ckpt::printable_name(name));
    return torch::jit::tryToGraphFunction(*method);
  }

  static void put_in_place(Node& node, torch::jit::GraphFunction& callee) {
    callee.ensure_defined();
    if (node.kind() == prim::CallFunction) {
      node.removeInput(0);
    }
    torch::jit::inlineCallTo(&node, &callee, callee.graph().get());
  }

  const std::shared_ptr<torch::jit::Graph> graph_;
  const std::string& title_;
  size_t visited_ = 0;
  int depth_ = 0;
};

std::shared_ptr<torch::jit::Graph> graph_of(const c10::ClassType& type, const std::string& name,
                                            const std::string& title) {
  torch::jit::Function* method = type.findMethod(name);
  FSDP2_CHECK(method != nullptr && method->isGraphFunction(), Code::kUnsupported,
              "{}: {} has no method {}", title, type.str(), ckpt::printable_name(name));
  method->ensure_defined();
  return torch::jit::toGraphFunction(*method).graph()->copy();
}

}  // namespace

std::shared_ptr<torch::jit::Graph> flat_forward(const c10::ClassType& module,
                                                const std::string& title) {
  std::shared_ptr<torch::jit::Graph> graph = graph_of(module, "forward", title);
  Flattener(graph, title).flatten(/*leave_calls=*/true);
  torch::jit::ConstantPropagationImmutableTypes(graph);  // what cannot happen goes
  torch::jit::EliminateDeadCode(graph);
  for_each_node(*graph->block(), [&](Node& node) {
    if (node.kind() == prim::GetAttr || node.kind() == prim::SetAttr ||
        node.kind() == prim::CallMethod) {
      return;
    }
    for (const torch::jit::Value* input : node.inputs()) {
      FSDP2_CHECK(!is_of_module(*input->type()), Code::kUnsupported,
                  "{}: uses a {} as a value: expected only calls of it", title,
                  input->type()->str());
    }
  });
  return graph;
}

std::shared_ptr<torch::jit::Graph> flat_method(const c10::ClassType& type, const std::string& name,
                                               const std::string& title) {
  std::shared_ptr<torch::jit::Graph> graph = graph_of(type, name, title);
  Flattener(graph, title).flatten(/*leave_calls=*/false);
  return graph;
}

bool is_module_call(const Node& node) {
  return node.kind() == prim::CallMethod && is_of_module(*node.input(0)->type());
}

std::optional<std::string> attribute_path(const torch::jit::Value& value) {
  const Node* node = value.node();
  if (node->kind() == prim::Param) {
    const bool is_self =
        node->owningGraph()->param_node() == node && node->owningGraph()->inputs()[0] == &value;
    return is_self ? std::optional<std::string>("") : std::nullopt;
  }
  if (node->kind() != prim::GetAttr) {
    return std::nullopt;
  }
  const auto holder = attribute_path(*node->input());
  if (!holder) {
    return std::nullopt;
  }
  return holder->empty() ? node->s(attr::name) : *holder + "." + node->s(attr::name);
}

bool takes_parameter(const Node& node) {
  if (node.kind() != prim::GetAttr || !is_of_module(*node.input()->type())) {
    return false;
  }
  const auto& holder = node.input()->type()->expectRef<c10::ClassType>();
  const auto slot = holder.findAttributeSlot(node.s(attr::name));
  return slot && holder.is_parameter(*slot);
}

}  // namespace fsdp2::exported
