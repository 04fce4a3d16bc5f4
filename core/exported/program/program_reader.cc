#include "core/exported/program/program_reader.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/ckpt/value/printable_name.h"
#include "core/exported/program/argument_reader.h"
#include "core/exported/program/call_stacks.h"
#include "core/exported/program/json_document.h"
#include "core/exported/program/serialized_types.h"
#include "core/exported/program/signature_reader.h"
#include "core/exported/program/value_scope.h"

namespace fsdp2::exported {

namespace {

using ckpt::printable_name;

constexpr int64_t kSchemaMajor = 8;
constexpr size_t kMaxNodes = size_t{1} << 20;
constexpr int kMaxGraphDepth = 8;
constexpr std::string_view kHigherOrder = "torch.ops.higher_order.";
constexpr std::string_view kSetGrad = "torch.ops.higher_order.wrap_with_set_grad_enabled";
constexpr std::string_view kAutocast = "torch.ops.higher_order.wrap_with_autocast";

// What a graph's nodes have in common.
struct Surroundings {
  int32_t mode = 0;
  int32_t stack = -1;  // of nodes that name none
  int depth = 0;       // of graphs in graphs
};

class ProgramReader {
 public:
  ProgramReader(const std::string& text, const std::string& label)
      : document_(text, label + ": models/model.json") {
    program_.label = label;
    program_.modes.emplace_back();
  }

  Program read() {
    check_version();
    const json& module = document_.member(document_.root(), "graph_module");
    read_modules(document_.member(module, "module_call_graph"));
    CallStacks stacks(document_, {program_.modules.begin(), program_.modules.end()},
                      program_.stacks);
    stacks_ = &stacks;
    const json& graph = document_.member(module, "graph");
    const json& signature = document_.member(module, "signature");
    ValueScope scope(document_, program_.values);
    read_inputs(document_, signature, graph, scope, program_);
    read_ranges(document_, document_.member(document_.root(), "range_constraints"), program_);
    read_nodes(document_.member(graph, "nodes"), scope, {});
    read_outputs(document_, signature, scope, program_);
    return std::move(program_);
  }

 private:
  void check_version() const {
    const json& version = document_.member(document_.root(), "schema_version");
    const json& major = document_.member(version, "major");
    if (document_.integer(major) != kSchemaMajor) {
      document_.refuse(Code::kUnsupported, major, "expected {}, as torch 2.11 writes it, found {}",
                       kSchemaMajor, major.dump());
    }
    const json& verifiers = document_.member(document_.root(), "verifiers");
    const auto& names = document_.array(verifiers);
    if (std::any_of(names.begin(), names.end(), [](const json& name) { return name == "ATEN"; })) {
      document_.refuse(Code::kUnsupported, verifiers,
                       "a decomposed program (\"ATEN\"): no_grad regions are lost in it; save what "
                       "torch.export.export returns");
    }
    if (names.size() != 1 || names.front() != "TRAINING") {
      document_.refuse(Code::kUnsupported, verifiers, "expected [\"TRAINING\"], found {}",
                       printable_name(verifiers.dump()));
    }
  }

  void read_modules(const json& call_graph) {
    std::unordered_set<std::string> seen;
    program_.modules.emplace_back();
    for (const json& entry : document_.array(call_graph)) {
      const json& name = document_.member(entry, "fqn");
      const std::string& path = document_.text(name);
      if (path.empty() || path.find('@') != std::string::npos) {  // the root; a further call
        continue;
      }
      const size_t dot = path.rfind('.');
      const std::string parent = dot == std::string::npos ? "" : path.substr(0, dot);
      const bool has_name = dot == std::string::npos || dot + 1 < path.size();
      if (!has_name || (!parent.empty() && seen.count(parent) == 0) || !seen.insert(path).second) {
        document_.refuse(Code::kCorruptData, name,
                         "expected a module after the one that holds it, and once, found \"{}\"",
                         printable_name(path));
      }
      program_.modules.push_back(path);
    }
  }

  // ---- nodes

  void read_nodes(const json& nodes, ValueScope& scope, const Surroundings& around) {
    if (document_.array(nodes).size() > kMaxNodes - program_.nodes.size()) {
      document_.refuse(Code::kUnsupported, nodes, "more than {} nodes are not accepted", kMaxNodes);
    }
    for (const json& node : document_.array(nodes)) {
      const std::string& target = document_.text(document_.member(node, "target"));
      if (starts_with(target, kHigherOrder)) {
        read_higher_order(node, target, scope, around);
      } else {
        program_.nodes.push_back(read_node(node, target, scope, around));
      }
    }
  }

  int32_t stack_of(const json& node, const Surroundings& around) {
    const int32_t own = stacks_->number_of(node);
    return own >= 0 ? own : around.stack;
  }

  Node read_node(const json& json_node, const std::string& target, ValueScope& scope,
                 const Surroundings& around) {
    Node node;
    node.target = target;
    node.mode = around.mode;
    node.stack = stack_of(json_node, around);
    if (const json* name = document_.find(json_node, "name")) {
      node.name = document_.text(*name);
    }
    for (const json& input : document_.array(document_.member(json_node, "inputs"))) {
      node.inputs.push_back({document_.text(document_.member(input, "name")),
                             read_argument(document_, scope, document_.member(input, "arg"))});
    }
    for (const json& output : document_.array(document_.member(json_node, "outputs"))) {
      node.outputs.push_back(read_output(output, scope));
    }
    return node;
  }

  Output read_output(const json& output, ValueScope& scope) {
    const auto [form, value] = document_.choice(output);
    if (form == "as_none") {
      return {};
    }
    if (form == "as_tensor") {
      return {{scope.define(document_.member(value, "name"), ValueKind::kTensor)}, false};
    }
    if (form == "as_tensors") {
      Output list;
      list.is_list = true;
      for (const json& tensor : document_.array(value)) {
        list.values.push_back(scope.define(document_.member(tensor, "name"), ValueKind::kTensor));
      }
      return list;
    }
    if (const auto kind = number_form(form)) {
      return {{scope.define(document_.member(value, "as_name"), *kind)}, false};
    }
    document_.refuse(Code::kUnsupported, output, "an output {} is not supported",
                     printable_name(form));
  }

  // ---- nodes that hold a graph

  void read_higher_order(const json& node, const std::string& target, ValueScope& scope,
                         const Surroundings& around) {
    const auto& inputs = document_.array(document_.member(node, "inputs"));
    Surroundings inside = {around.mode, stack_of(node, around), around.depth + 1};
    if (inside.depth > kMaxGraphDepth) {
      document_.refuse(Code::kCorruptData, node, "graphs are nested more than {} deep",
                       kMaxGraphDepth);
    }
    Mode mode = program_.modes[static_cast<size_t>(around.mode)];
    size_t graph_at = 0;
    if (target == kSetGrad) {
      mode.grad = document_.flag(document_.member(input_at(node, inputs, 0), "as_bool"));
      graph_at = 1;
    } else if (target == kAutocast) {
      mode.autocast = read_autocast(node, inputs);
      graph_at = 4;
    } else {
      refuse_higher_order(node, target, inside.stack);
    }
    inside.mode = number_of(mode);
    const json& holder = document_.member(input_at(node, inputs, graph_at), "as_graph");
    inline_graph(node, document_.member(holder, "graph"), graph_at + 1, scope, inside);
  }

  const json& input_at(const json& node, const json::array_t& inputs, size_t index) const {
    if (index >= inputs.size()) {
      document_.refuse(Code::kCorruptData, node, "expected more than {} inputs, found {}", index,
                       inputs.size());
    }
    return document_.member(inputs[index], "arg");
  }

  // device type, dtype or none, enabled, cache enabled. The run's device stands for the file's.
  Mode::Autocast read_autocast(const json& node, const json::array_t& inputs) const {
    Mode::Autocast autocast;
    document_.text(document_.member(input_at(node, inputs, 0), "as_string"));
    autocast.enabled = document_.flag(document_.member(input_at(node, inputs, 2), "as_bool"));
    if (const json* number = document_.find(input_at(node, inputs, 1), "as_scalar_type")) {
      autocast.dtype = read_dtype(document_, *number);
    }
    return autocast;
  }

  int32_t number_of(const Mode& mode) {
    const auto found = std::find(program_.modes.begin(), program_.modes.end(), mode);
    const auto number = static_cast<int32_t>(found - program_.modes.begin());
    if (found == program_.modes.end()) {
      program_.modes.push_back(mode);
    }
    return number;
  }

  // Binds the graph's inputs to the node's inputs from `first` on, reads its nodes, and binds the
  // node's outputs to the graph's.
  void inline_graph(const json& node, const json& graph, size_t first, ValueScope& scope,
                    const Surroundings& inside) {
    const auto& given = document_.array(document_.member(node, "inputs"));
    const auto& inputs = document_.array(document_.member(graph, "inputs"));
    const auto& results = document_.array(document_.member(graph, "outputs"));
    const auto& outputs = document_.array(document_.member(node, "outputs"));
    if (given.size() != first + inputs.size() || outputs.size() != results.size()) {
      document_.refuse(Code::kCorruptData, node,
                       "its graph takes {} inputs and gives {} outputs, it has {} and {}",
                       inputs.size(), results.size(), given.size() - std::min(given.size(), first),
                       outputs.size());
    }
    ValueScope inner(document_, program_.values);
    for (size_t i = 0; i < inputs.size(); ++i) {
      bind(inputs[i], inner, input_at(node, given, first + i), scope);
    }
    read_nodes(document_.member(graph, "nodes"), inner, inside);
    for (size_t i = 0; i < results.size(); ++i) {
      bind(outputs[i], scope, results[i], inner);
    }
  }

  // Makes the name in `to` stand for what `from` names.
  void bind(const json& to, ValueScope& to_scope, const json& from, const ValueScope& from_scope) {
    const auto [form, target] = document_.choice(to);
    const auto [from_form, source] = document_.choice(from);
    if (form != from_form) {
      document_.refuse(Code::kCorruptData, to, "expected {}, found {}", printable_name(from_form),
                       printable_name(form));
    }
    if (form == "as_tensor") {
      to_scope.alias(document_.member(target, "name"),
                     from_scope.use(document_.member(source, "name"), ValueKind::kTensor));
    } else if (const auto kind = number_form(form)) {
      if (document_.find(target, "as_name") != nullptr) {  // else a constant, which needs no name
        to_scope.alias(document_.member(target, "as_name"),
                       from_scope.use(document_.member(source, "as_name"), *kind));
      }
    } else if (form != "as_none") {
      document_.refuse(Code::kUnsupported, to, "a graph's {} is not supported",
                       printable_name(form));
    }
  }

  [[noreturn]] void refuse_higher_order(const json& node, const std::string& target,
                                        int32_t stack) const {
    const json* metadata = document_.find(node, "metadata");
    const json* trace = metadata == nullptr ? nullptr : document_.find(*metadata, "stack_trace");
    std::string place;
    if (trace != nullptr && trace->is_string()) {
      place = ", " + last_place(trace->get_ref<const std::string&>());
    }
    document_.refuse(Code::kUnsupported, node,
                     "{} in module \"{}\"{}: control flow inside the program is not supported",
                     printable_name(target),
                     stack < 0 ? "" : program_.stacks[static_cast<size_t>(stack)].back().path,
                     place);
  }

  // The last `File "model.py", line 152` of a Python stack trace.
  static std::string last_place(const std::string& trace) {
    const size_t begin = trace.rfind("File \"");
    if (begin == std::string::npos) {
      return "";
    }
    return printable_name(trace.substr(begin, trace.find('\n', begin) - begin));
  }

  const JsonDocument document_;
  Program program_;
  CallStacks* stacks_ = nullptr;
};

}  // namespace

Program read_program(const std::string& text, const std::string& label) {
  return ProgramReader(text, label).read();
}

}  // namespace fsdp2::exported
