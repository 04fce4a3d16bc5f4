#include "core/exported/script/script_plan.h"

#include <ATen/core/function.h>

#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/exported/script/script_graph.h"
#include "core/exported/script/script_lines.h"

namespace fsdp2::exported {

namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

constexpr int64_t kAfterAll = std::numeric_limits<int64_t>::max();

// Constants and attributes: each piece of code takes them anew.
bool is_repeatable(const Node& node) {
  return node.kind() == torch::jit::prim::Constant ||
         (node.outputs().size() == 1 && attribute_path(*node.output()).has_value());
}

// A piece of code as a graph of its own.
class CodePiece {
 public:
  explicit CodePiece(const Value& self) : graph_(std::make_shared<Graph>()) {
    values_[&self] = graph_->addInput()->setType(self.type());
  }

  bool is_empty() const { return is_empty_; }
  const std::vector<Value*>& inputs() const { return inputs_; }
  const std::vector<Value*>& outputs() const { return outputs_; }

  void add(Node& node) {
    is_empty_ = false;
    append(node);
    for (Value* output : node.outputs()) {
      made_.push_back(output);
    }
  }

  // What is_used says of becomes an output.
  template <typename IsUsed>
  void finish(const IsUsed& is_used) {
    for (Value* value : made_) {
      if (is_used(*value)) {
        outputs_.push_back(value);
        graph_->registerOutput(values_.at(value));
      }
    }
  }

  std::vector<std::string> parameters() const {
    std::set<std::string> paths;
    for_each_node(*graph_->block(), [&](Node& node) {
      if (takes_parameter(node)) {
        paths.insert(attribute_path(*node.output()).value());
      }
    });
    return {paths.begin(), paths.end()};
  }

  std::shared_ptr<torch::jit::GraphExecutor> compile(const std::string& name) const {
    // Simple: each operator as it stands there. The other one changes the graph after its first
    // runs, and what it then saves for backward is not what activation checkpointing has counted.
    return std::make_shared<torch::jit::GraphExecutor>(graph_, name, torch::jit::SIMPLE);
  }

 private:
  void append(Node& node) {
    Node* copy = graph_->createClone(&node, [this](Value* value) { return find(*value); });
    graph_->appendNode(copy);
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      values_[node.outputs()[i]] = copy->outputs()[i];
    }
  }

  Value* find(Value& value) {
    const auto found = values_.find(&value);
    if (found != values_.end()) {
      return found->second;
    }
    if (is_repeatable(*value.node())) {
      append(*value.node());
    } else {
      inputs_.push_back(&value);
      values_[&value] = graph_->addInput()->setType(value.type());
    }
    return values_.at(&value);
  }

  std::shared_ptr<Graph> graph_;
  bool is_empty_ = true;
  std::vector<Value*> made_;
  std::vector<Value*> inputs_;
  std::vector<Value*> outputs_;
  std::unordered_map<const Value*, Value*> values_;  // of the whole graph -> of this one
};

class ScriptPlanner {
 public:
  ScriptPlanner(Graph& graph, const std::string& title) : graph_(graph), title_(title) {}

  ScriptPlan plan() {
    find_last_uses();
    for (size_t i = 1; i < graph_.inputs().size(); ++i) {
      plan_.inputs.push_back(place_of(*graph_.inputs()[i]));
    }
    CodePiece piece(self());
    int64_t index = 0;
    for (Node* node : graph_.nodes()) {
      if (is_module_call(*node)) {
        close(piece, index - 1);
        add_call(*node, index);
      } else if (!is_repeatable(*node) || is_given_on(*node)) {
        piece.add(*node);
      }
      ++index;
    }
    close(piece, index - 1);
    plan_.output = place_of(*graph_.outputs()[0]);
    plan_.frame_size = places_.size();
    return std::move(plan_);
  }

 private:
  const Value& self() const { return *graph_.inputs()[0]; }

  // By value: the last node of the outermost block in or below which it is used.
  void find_last_uses() {
    std::unordered_map<const Node*, int64_t> indices = {{graph_.return_node(), kAfterAll}};
    for (Node* node : graph_.nodes()) {
      indices.emplace(node, static_cast<int64_t>(indices.size()) - 1);
    }
    const auto visit = [&](const Value* value) {
      int64_t& last = last_use_[value];
      last = -1;
      for (const torch::jit::Use& use : value->uses()) {
        Node* user = use.user;
        while (user->owningBlock() != graph_.block()) {
          user = user->owningBlock()->owningNode();
        }
        last = std::max(last, indices.at(user));
      }
    };
    for (const Value* value : graph_.inputs()) {
      visit(value);
    }
    for (Node* node : graph_.nodes()) {
      for (const Value* value : node->outputs()) {
        visit(value);
      }
    }
  }

  // Whether a module inside gets it, or forward returns it, as it is.
  bool is_given_on(const Node& node) const {
    for (const torch::jit::Use& use : node.output()->uses()) {
      const bool is_argument = is_module_call(*use.user) && use.offset > 0;
      if (use.user == graph_.return_node() ||
          (is_argument && use.user->owningBlock() == graph_.block())) {
        return true;
      }
    }
    return false;
  }

  int32_t place_of(const Value& value) {
    return places_.emplace(&value, static_cast<int32_t>(places_.size())).first->second;
  }

  int32_t place_if_read(const Value& value) {
    return last_use_.at(&value) < 0 ? -1 : place_of(value);
  }

  void add_call(const Node& node, int64_t index) {
    ScriptStep step;
    step.call = attribute_path(*node.input(0)).value();
    for (size_t i = 1; i < node.inputs().size(); ++i) {
      const Value& value = *node.input(i);
      bool is_last = last_use_.at(&value) <= index;
      for (size_t k = i + 1; k < node.inputs().size(); ++k) {
        is_last = is_last && node.input(k) != &value;
      }
      step.reads.push_back({place_of(value), is_last});
    }
    step.writes.push_back(place_if_read(*node.output()));
    plan_.steps.push_back(std::move(step));
  }

  // The nodes up to `index` that were added become a step, and another piece begins.
  void close(CodePiece& piece, int64_t index) {
    if (piece.is_empty()) {
      return;
    }
    piece.finish([&](const Value& value) { return last_use_.at(&value) > index; });
    ScriptStep step;
    for (const Value* value : piece.inputs()) {
      step.reads.push_back({place_of(*value), last_use_.at(value) <= index});
    }
    for (const Value* value : piece.outputs()) {
      step.writes.push_back(place_of(*value));
    }
    step.parameters = piece.parameters();
    step.code = piece.compile(title_);
    plan_.steps.push_back(std::move(step));
    piece = CodePiece(self());
  }

  Graph& graph_;
  const std::string& title_;
  ScriptPlan plan_;
  std::unordered_map<const Value*, int64_t> last_use_;
  std::unordered_map<const Value*, int32_t> places_;
};

}  // namespace

ScriptPlan plan_script(const c10::ClassType& module, const std::string& title) {
  const std::shared_ptr<Graph> graph = flat_forward(module, title);
  ScriptEffects effects = find_effects(*graph, title);
  ScriptPlan plan = ScriptPlanner(*graph, title).plan();
  const auto& arguments = module.getMethod("forward").getSchema().arguments();
  plan.arguments.assign(arguments.begin() + 1, arguments.end());
  plan.effects = std::move(effects);
  plan.lines = lines_of(graph);
  return plan;
}

}  // namespace fsdp2::exported
