#include "core/exported/script/script_effects.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <string>
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

// What they give is new, and holds what they are given.
const std::array<torch::jit::NodeKind, 5> kConstructors = {
    prim_kinds::ListConstruct, prim_kinds::TupleConstruct, prim_kinds::DictConstruct,
    prim_kinds::CreateObject, prim_kinds::Constant};

constexpr size_t kMaxKnown = size_t{1} << 22;

class EffectFinder {
 public:
  EffectFinder(torch::jit::Graph& graph, const std::string& title) : graph_(graph), title_(title) {}

  ScriptEffects find() {
    for (size_t i = 1; i < graph_.inputs().size(); ++i) {
      const Value* input = graph_.inputs()[i];
      owners_[input] = {{Owner::Kind::kInput, is_container(*input), input->debugNameBase()}};
    }
    visit(*graph_.block());
    return std::move(effects_);
  }

 private:
  // What was there before, or a list, dict, tuple or object that forward makes.
  struct Owner {
    enum class Kind { kInput, kAttribute, kParameter, kMade } kind;
    bool is_container;
    std::string name;  // of an input; path of an attribute; a number of its own

    bool operator<(const Owner& other) const {
      return std::tie(kind, name) < std::tie(other.kind, other.name);
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
          check_changes_nothing(inner);
        }
      });
    }
  }

  void check_changes_nothing(const Node& node) const {
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      const c10::AliasInfo* alias = alias_of(node, i);
      FSDP2_CHECK(alias == nullptr || !(alias->isWrite() || writes_inside(alias)),
                  Code::kUnsupported,
                  "{}: what its `with` enters uses {}, which changes something in place", title_,
                  node.kind().toQualString());
    }
  }

  bool is_of_attribute(const Value& object) {
    const Owners& owners = owners_[&object];
    return attribute_path(object) ||
           std::any_of(owners.begin(), owners.end(), [](const Owner& owner) {
             return owner.kind == Owner::Kind::kAttribute && owner.is_container;
           });
  }

  void check(const Node& node) {
    const std::string kind = node.kind().toQualString();
    FSDP2_CHECK(node.kind() != prim_kinds::SetAttr || !is_of_attribute(*node.input(0)),
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

  void add(const Owners& owners, const Value* value) { join(owners, owners_[value]); }

  void join(const Owners& owners, Owners& all) {
    known_ -= all.size();
    all.insert(owners.begin(), owners.end());
    known_ += all.size();
    FSDP2_CHECK(known_ <= kMaxKnown, Code::kUnsupported,
                "{}: too many of its values may be the same memory to follow them all", title_);
  }

  // The value's owners, and those of what is in them by now.
  Owners reached_by(const Value* value) {
    Owners reached = owners_[value];
    std::vector<Owner> open(reached.begin(), reached.end());
    while (!open.empty()) {
      const auto held = held_.find(open.back());
      open.pop_back();
      if (held != held_.end()) {
        for (const Owner& owner : held->second) {
          if (reached.insert(owner).second) {
            open.push_back(owner);
          }
        }
      }
    }
    return reached;
  }

  Owners owners_of_inputs(const Node& node) {
    if (node.kind() == prim_kinds::GetAttr) {
      return owners_of_attribute(node);
    }
    const bool gives_all = gives_what_it_is_given(node);
    Owners owners;
    std::vector<const Value*> holders;
    for (size_t i = is_module_call(node) ? 1 : 0; i < node.inputs().size(); ++i) {
      const Value* input = node.input(i);
      const c10::AliasInfo* alias = alias_of(node, i);
      const Owners reached = reached_by(input);
      if (alias != nullptr || gives_all) {
        owners.insert(reached.begin(), reached.end());
      }
      if (writes_inside(alias)) {
        write_to(reached, /*is_container=*/false);
      } else if (alias != nullptr && alias->isWrite()) {
        write_to(owners_[input], is_container(*input));
        if (is_container(*input)) {
          holders.push_back(input);
        }
      }
    }
    if (node.kind() == prim_kinds::SetAttr) {
      holders.push_back(node.input(0));
    }
    if (!may_hold_tensors(node.outputs()) && !may_hold_tensors(holders)) {
      owners = containers_of(owners);
    }
    for (const Value* holder : holders) {
      put_into(*holder, owners);
    }
    return holds_more(node) ? owners_of_new_container(node, std::move(owners)) : owners;
  }

  Owners owners_of_attribute(const Node& node) {
    const auto path = attribute_path(*node.output());
    if (takes_parameter(node)) {
      return {{Owner::Kind::kParameter, /*is_container=*/false,
               path.value_or(node.s(torch::jit::attr::name))}};
    }
    return path ? Owners{{Owner::Kind::kAttribute, is_container(*node.output()), *path}}
                : reached_by(node.input());
  }

  // Whether the outputs may be, or hold, any of the inputs. Operators of lists and dicts, which the
  // dispatcher does not know, do not say it of what these hold.
  static bool gives_what_it_is_given(const Node& node) {
    const c10::FunctionSchema* schema = node.kind().is_aten() ? node.maybeSchema() : nullptr;
    return schema == nullptr || !c10::Dispatcher::singleton().findSchema(schema->operator_name());
  }

  // Whether the output is a list, say, which is no value that is followed already.
  static bool holds_more(const Node& node) {
    return node.blocks().empty() &&
           std::any_of(node.outputs().begin(), node.outputs().end(),
                       [](const Value* value) { return is_container(*value); });
  }

  // Constructors give what is new; others may also give what was there.
  Owners owners_of_new_container(const Node& node, Owners held) {
    const Owner made{Owner::Kind::kMade, /*is_container=*/true,
                     std::to_string(made_.emplace(&node, made_.size()).first->second)};
    join(held, held_[made]);
    if (std::find(kConstructors.begin(), kConstructors.end(), node.kind()) != kConstructors.end()) {
      return {made};
    }
    held.insert(made);
    return held;
  }

  template <typename Values>
  static bool may_hold_tensors(const Values& values) {
    return std::any_of(values.begin(), values.end(),
                       [](const Value* value) { return may_hold_tensors(*value->type()); });
  }

  static bool may_hold_tensors(const c10::Type& type) {
    const auto inside = type.containedTypes();
    return type.kind() == c10::TypeKind::TensorType || type.kind() == c10::TypeKind::ClassType ||
           type.kind() == c10::TypeKind::AnyType ||
           std::any_of(inside.begin(), inside.end(),
                       [](const c10::TypePtr& one) { return may_hold_tensors(*one); });
  }

  // What is left of them for a list of numbers.
  static Owners containers_of(const Owners& owners) {
    Owners containers;
    std::copy_if(owners.begin(), owners.end(), std::inserter(containers, containers.end()),
                 [](const Owner& owner) { return owner.is_container; });
    return containers;
  }

  // Schemas of texts take more inputs than they name.
  static const c10::AliasInfo* alias_of(const Node& node, size_t input) {
    const c10::FunctionSchema* schema = node.kind().is_aten() ? node.maybeSchema() : nullptr;
    return schema != nullptr && input < schema->arguments().size()
               ? schema->arguments()[input].alias_info()
               : nullptr;
  }

  // Whether what is in the list is changed: "Tensor(a!)[]".
  static bool writes_inside(const c10::AliasInfo* alias) {
    return alias != nullptr &&
           std::any_of(alias->containedTypes().begin(), alias->containedTypes().end(),
                       [](const c10::AliasInfo& inside) {
                         return inside.isWrite() || writes_inside(&inside);
                       });
  }

  // A list, say, which is changed without what it holds.
  static bool is_container(const Value& value) {
    const auto optional = value.type()->cast<c10::OptionalType>();
    const c10::TypePtr type = optional ? optional->getElementType() : value.type();
    return type->kind() == c10::TypeKind::ListType || type->kind() == c10::TypeKind::DictType ||
           type->kind() == c10::TypeKind::TupleType || type->kind() == c10::TypeKind::ClassType ||
           type->kind() == c10::TypeKind::AnyType;
  }

  // Into whatever the value may be. What was there before the call is there after it.
  void put_into(const Value& value, const Owners& owners) {
    for (const Owner& holder : owners_[&value]) {
      if (!holder.is_container) {
        continue;
      }
      join(owners, held_[holder]);
      const auto parameter = std::find_if(owners.begin(), owners.end(), [](const Owner& owner) {
        return owner.kind == Owner::Kind::kParameter;
      });
      FSDP2_CHECK(holder.kind == Owner::Kind::kMade || parameter == owners.end(),
                  Code::kUnsupported,
                  "{}: its forward keeps the parameter {} in {}, for after the call, when sharding "
                  "may have freed it",
                  title_, ckpt::printable_name(parameter->name), ckpt::printable_name(holder.name));
    }
  }

  // is_container: what is written to is a list, say, and not what it holds.
  void write_to(const Owners& owners, bool is_container) {
    effects_.changes_in_place = true;
    for (const Owner& owner : owners) {
      if (is_container && !owner.is_container) {
        continue;
      }
      FSDP2_CHECK(owner.kind != Owner::Kind::kParameter, Code::kUnsupported,
                  "{}: its forward changes the parameter {} in place, which only an optimizer may",
                  title_, ckpt::printable_name(owner.name));
      if (owner.kind == Owner::Kind::kInput) {
        effects_.changed_input = owner.name;
      } else if (owner.kind == Owner::Kind::kAttribute) {
        effects_.changed_attribute = owner.name;
      }
    }
  }

  torch::jit::Graph& graph_;
  const std::string& title_;
  ScriptEffects effects_;
  std::unordered_map<const Value*, Owners> owners_;
  std::map<Owner, Owners> held_;                  // by what holds it
  std::unordered_map<const Node*, size_t> made_;  // numbers of containers
  size_t known_ = 0;                              // owners of all values and holders together
};

}  // namespace

ScriptEffects find_effects(torch::jit::Graph& graph, const std::string& title) {
  return EffectFinder(graph, title).find();
}

}  // namespace fsdp2::exported
