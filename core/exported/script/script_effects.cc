#include "core/exported/script/script_effects.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"
#include "core/exported/script/script_graph.h"
#include "core/operators/operator_rules.h"

namespace fsdp2::exported {

namespace {

using torch::jit::Node;
using torch::jit::Value;
namespace prim_kinds = torch::jit::prim;

// They write files, or run code on other threads or machines.
constexpr std::array<std::string_view, 10> kRefused = {"aten::save",
                                                       "prim::PythonOp",
                                                       "prim::fork",
                                                       "prim::forkClosure",
                                                       "prim::awaitable",
                                                       "prim::rpc_async",
                                                       "prim::rpc_sync",
                                                       "prim::rpc_remote",
                                                       "prim::awaitableClosure",
                                                       "prim::awaitable_nowait"};

constexpr size_t kMaxKnown = size_t{1} << 22;

class EffectFinder {
 public:
  EffectFinder(torch::jit::Graph& graph, const std::string& title) : graph_(graph), title_(title) {}

  ScriptEffects find() {
    for (size_t i = 1; i < graph_.inputs().size(); ++i) {
      const Value* input = graph_.inputs()[i];
      owners_[input] = {{/*is_input=*/true, is_container(*input), input->debugNameBase()}};
    }
    visit(*graph_.block());
    return std::move(effects_);
  }

 private:
  struct Owner {
    bool is_input;
    bool is_container;
    std::string name;  // of an input; path of an attribute

    bool operator<(const Owner& other) const {
      return std::tie(is_input, name) < std::tie(other.is_input, other.name);
    }
  };
  using Owners = std::set<Owner>;

  void visit(torch::jit::Block& block) {
    for (Node* node : block.nodes()) {
      check(*node);
      follow(*node);
      if (node->kind() == prim_kinds::Enter) {
        visit_context(*node);
      }
    }
  }

  // What a `with` runs, which is no part of the graph.
  void visit_context(const Node& node) {
    const auto type = node.input(0)->type()->cast<c10::ClassType>();
    FSDP2_CHECK(type != nullptr, Code::kUnsupported, "{}: a `with` of {}", title_,
                node.input(0)->type()->str());
    for (const char* name : {"__enter__", "__exit__"}) {
      const auto graph = flat_method(*type, name, title_);
      for_each_node(*graph->block(), [this](Node& inner) {
        if (inner.kind() != prim_kinds::SetAttr) {
          check(inner);
        }
      });
    }
  }

  void check(const Node& node) {
    const std::string kind = node.kind().toQualString();
    FSDP2_CHECK(node.kind() != prim_kinds::SetAttr || !attribute_path(*node.input(0)),
                Code::kUnsupported,
                "{}: its forward assigns the attribute {}: expected one that it changes in place, "
                "and registers as a buffer",
                title_, ckpt::printable_name(node.s(torch::jit::attr::name)));
    FSDP2_CHECK(node.kind() != prim_kinds::CallMethod || is_module_call(node), Code::kUnsupported,
                "{}: its forward calls {} of {}, a class of C++, which may do more than compute",
                title_, ckpt::printable_name(node.s(torch::jit::attr::name)),
                node.input(0)->type()->str());
    FSDP2_CHECK(std::find(kRefused.begin(), kRefused.end(), kind) == kRefused.end(),
                Code::kUnsupported, "{}: its forward uses {}, which does more than compute", title_,
                kind);
    FSDP2_CHECK(node.kind().is_prim() || node.kind().is_aten(), Code::kUnsupported,
                "{}: its forward uses {}, an operator of another library than LibTorch", title_,
                kind);
    if (node.maybeSchema() != nullptr && node.kind().is_aten()) {
      check_operator(node, *node.maybeSchema());
    }
  }

  void check_operator(const Node& node, const c10::FunctionSchema& schema) {
    const auto op = c10::Dispatcher::singleton().findSchema(schema.operator_name());
    if (!op) {
      return;  // of lists, texts and numbers
    }
    FSDP2_CHECK(operators::only_computes(op->schema()), Code::kUnsupported,
                "{}: its forward uses {}, which does more than compute", title_, schema.name());
    effects_.draws_random_numbers |=
        op->hasTag(at::Tag::nondeterministic_seeded) && !is_without_chance(node, schema);
  }

  // Attention and dropout draw nothing with a probability of 0, or in eval mode.
  static bool is_without_chance(const Node& node, const c10::FunctionSchema& schema) {
    for (size_t i = 0; i < node.inputs().size() && i < schema.arguments().size(); ++i) {
      const std::string& name = schema.arguments()[i].name();
      const auto constant = torch::jit::toIValue(node.input(i));
      if (!constant) {
        continue;
      }
      const bool is_zero = constant->isDouble() && constant->toDouble() == 0.0;
      const bool is_false = constant->isBool() && !constant->toBool();
      if ((is_zero && (name == "p" || name == "dropout_p" || name == "dropout")) ||
          (is_false && name == "train")) {
        return true;
      }
    }
    return false;
  }

  // Whose memory each value may be, and which of it is written to. What the end of a loop's body
  // tells holds for its next round, too.
  void follow(Node& node) {
    Owners owners = owners_of_inputs(node);
    const bool is_loop = node.kind() == prim_kinds::Loop;
    size_t known = 0;
    do {
      known = known_;
      for (torch::jit::Block* inner : node.blocks()) {
        for (const Value* value : inner->inputs()) {  // a loop's
          add(owners, value);
        }
        visit(*inner);
        for (const Value* value : inner->outputs()) {
          const Owners& of_output = owners_[value];
          owners.insert(of_output.begin(), of_output.end());
        }
      }
    } while (is_loop && known_ != known);
    for (const Value* value : node.outputs()) {
      add(owners, value);
    }
  }

  void add(const Owners& owners, const Value* value) {
    Owners& all = owners_[value];
    known_ -= all.size();
    all.insert(owners.begin(), owners.end());
    known_ += all.size();
    FSDP2_CHECK(known_ <= kMaxKnown, Code::kUnsupported,
                "{}: too many of its values may be the same memory to follow them all", title_);
  }

  Owners owners_of_inputs(const Node& node) {
    if (node.kind() == prim_kinds::GetAttr) {
      const auto path = attribute_path(*node.output());
      if (path && takes_parameter(node)) {
        parameters_.insert(*path);
      }
      return path ? Owners{{/*is_input=*/false, is_container(*node.output()), *path}}
                  : owners_[node.input()];
    }
    Owners owners;
    std::vector<const Value*> written;
    const c10::FunctionSchema* schema = node.kind().is_aten() ? node.maybeSchema() : nullptr;
    for (size_t i = is_module_call(node) ? 1 : 0; i < node.inputs().size(); ++i) {
      const Owners& of_input = owners_[node.input(i)];
      const c10::AliasInfo* alias = schema == nullptr ? nullptr : alias_of(*schema, i);
      if (schema == nullptr || alias != nullptr) {
        owners.insert(of_input.begin(), of_input.end());
      }
      if (alias != nullptr && alias->isWrite()) {
        effects_.changes_in_place = true;
        write(*node.input(i), of_input);
        written.push_back(node.input(i));
      }
    }
    for (const Value* value : written) {  // a list holds what is put into it
      add(owners, value);
    }
    return owners;
  }

  // Schemas of texts take more inputs than they name.
  static const c10::AliasInfo* alias_of(const c10::FunctionSchema& schema, size_t input) {
    return input < schema.arguments().size() ? schema.arguments()[input].alias_info() : nullptr;
  }

  // A list, say, which is changed without what it holds.
  static bool is_container(const Value& value) {
    const auto optional = value.type()->cast<c10::OptionalType>();
    const c10::TypeKind kind = (optional ? optional->getElementType() : value.type())->kind();
    return kind == c10::TypeKind::ListType || kind == c10::TypeKind::DictType ||
           kind == c10::TypeKind::TupleType;
  }

  void write(const Value& value, const Owners& owners) {
    for (const Owner& owner : owners) {
      if (is_container(value) && !owner.is_container) {
        continue;
      }
      FSDP2_CHECK(owner.is_input || parameters_.count(owner.name) == 0, Code::kUnsupported,
                  "{}: its forward changes the parameter {} in place, which only an optimizer may",
                  title_, ckpt::printable_name(owner.name));
      (owner.is_input ? effects_.changed_input : effects_.changed_attribute) = owner.name;
    }
  }

  torch::jit::Graph& graph_;
  const std::string& title_;
  ScriptEffects effects_;
  std::unordered_map<const Value*, Owners> owners_;
  size_t known_ = 0;                  // owners of all values together
  std::set<std::string> parameters_;  // paths
};

}  // namespace

ScriptEffects find_effects(torch::jit::Graph& graph, const std::string& title) {
  return EffectFinder(graph, title).find();
}

}  // namespace fsdp2::exported
