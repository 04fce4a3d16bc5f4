#include "core/exported/operators/operations.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/ckpt/value/printable_name.h"
#include "core/exported/operators/operation_inputs.h"
#include "core/operators/operator_rules.h"

namespace fsdp2::exported {

namespace {

using ckpt::printable_name;

constexpr std::string_view kOperatorPrefix = "torch.ops.";
constexpr std::string_view kNamespace = "aten";
constexpr std::string_view kCopy = "torch.ops.aten.copy_.default";
constexpr std::string_view kCheckMetadata = "torch.ops.aten._assert_tensor_metadata.default";

struct OperatorName {
  std::string space;
  std::string name;
  std::string overload;  // "" for "default"
};

class Resolver {
 public:
  Resolver(const Program& program, const Node& node) : program_(program), node_(node) {}

  Operation resolve() const {
    Operation operation;
    operation.node = &node_;
    if (node_.target == kCheckMetadata) {
      resolve_metadata_check(operation);
    } else if (const NumberOperator* number = find_number_operator(node_.target)) {
      resolve_number(*number, operation);
    } else {
      resolve_operator(operation);
    }
    return operation;
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(Code code, fmt::format_string<Args...> text, Args&&... args) const {
    fail(code, "{}: {}", title_of(program_, node_), fmt::format(text, std::forward<Args>(args)...));
  }

  const NamedArgument* find_input(const std::string& name) const {
    const auto found = std::find_if(node_.inputs.begin(), node_.inputs.end(),
                                    [&](const NamedArgument& input) { return input.name == name; });
    return found == node_.inputs.end() ? nullptr : &*found;
  }

  // Device and layout are those of the machine that exported.
  void resolve_metadata_check(Operation& operation) const {
    const NamedArgument* tensor = find_input("a");
    const NamedArgument* dtype = find_input("dtype");
    const bool has_tensor = tensor != nullptr && is_tensor(program_, tensor->argument);
    if (!has_tensor || !node_.outputs.empty()) {
      refuse(Code::kCorruptData, "expected a tensor as \"a\", and no results");
    }
    operation.inputs = {{tensor->argument, OperationInput::As::kGiven}};
    if (dtype != nullptr && dtype->argument.constant.isInt()) {
      operation.only_dtype = static_cast<at::ScalarType>(dtype->argument.constant.toInt());
    }
  }

  void resolve_number(const NumberOperator& number, Operation& operation) const {
    const bool has_result = node_.outputs.size() == 1 && node_.outputs[0].values.size() == 1 &&
                            !node_.outputs[0].is_list &&
                            kind_of(node_.outputs[0].values[0]) != ValueKind::kTensor;
    if (node_.inputs.size() != number.inputs || !has_result) {
      refuse(Code::kCorruptData, "expected {} numbers and one as a result, found {} and {}",
             number.inputs, node_.inputs.size(), node_.outputs.size());
    }
    operation.number = &number;
    for (const NamedArgument& input : node_.inputs) {
      if (!is_number(program_, input.argument)) {
        refuse(Code::kCorruptData, "{}: expected a number", printable_name(input.name));
      }
      operation.inputs.push_back({input.argument, OperationInput::As::kGiven});
    }
  }

  void resolve_operator(Operation& operation) const {
    const OperatorName name = split_target();
    operation.op =
        c10::Dispatcher::singleton().findSchema({name.space + "::" + name.name, name.overload});
    if (!operation.op) {
      refuse(Code::kUnsupported, "this LibTorch has no such operator");
    }
    const c10::FunctionSchema& schema = operation.op->schema();
    if (!operators::only_computes(schema)) {
      refuse(Code::kUnsupported, "the operator does more than compute a result: it is not run");
    }
    check_names(schema);
    for (const c10::Argument& formal : schema.arguments()) {
      operation.inputs.push_back(input_of(formal));
    }
    check_outputs(schema);
    operation.is_copy = node_.target == kCopy;
  }

  // torch.ops.aten.add.Tensor
  OperatorName split_target() const {
    std::vector<std::string> parts;
    if (starts_with(node_.target, kOperatorPrefix)) {
      std::string_view rest = std::string_view(node_.target).substr(kOperatorPrefix.size());
      while (!rest.empty()) {
        const size_t dot = rest.find('.');
        parts.emplace_back(rest.substr(0, dot));
        rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
      }
    }
    if (parts.size() != 3) {
      refuse(Code::kUnsupported, "is no operator of LibTorch");
    }
    if (parts[0] != kNamespace) {
      refuse(Code::kUnsupported, "only operators of namespace aten run here");
    }
    return {parts[0], parts[1], parts[2] == "default" ? "" : parts[2]};
  }

  void check_names(const c10::FunctionSchema& schema) const {
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      const std::string& name = node_.inputs[i].name;
      if (!schema.argumentIndexWithName(name)) {
        refuse(Code::kCorruptData, "there is no argument {}", printable_name(name));
      }
      if (find_input(name) != &node_.inputs[i]) {
        refuse(Code::kCorruptData, "the argument {} is given twice", printable_name(name));
      }
    }
  }

  OperationInput input_of(const c10::Argument& formal) const {
    const NamedArgument* given = find_input(formal.name());
    if (given == nullptr) {
      if (!formal.default_value()) {
        refuse(Code::kCorruptData, "the argument {} is missing", formal.name());
      }
      OperationInput input;
      input.argument.constant = *formal.default_value();
      return input;
    }
    return in_context(title_of(program_, node_),
                      [&] { return fit_input(program_, given->argument, formal); });
  }

  ValueKind kind_of(ValueId value) const {
    return program_.values[static_cast<size_t>(value)].kind;
  }

  void check_outputs(const c10::FunctionSchema& schema) const {
    const auto& returns = schema.returns();
    bool fits = returns.size() == node_.outputs.size();
    for (size_t i = 0; fits && i < returns.size(); ++i) {
      fits = fits_return(node_.outputs[i], *returns[i].type());
    }
    if (!fits) {
      refuse(Code::kCorruptData, "its results are not those of the operator: {}",
             printable_name(c10::toString(schema)));
    }
  }

  bool fits_return(const Output& output, const c10::Type& type) const {
    if (output.is_list) {
      const auto* list = type.castRaw<c10::ListType>();
      return list != nullptr && list->getElementType()->kind() == c10::TypeKind::TensorType;
    }
    if (output.values.empty()) {
      return true;
    }
    switch (type.kind()) {
      case c10::TypeKind::TensorType:
        return kind_of(output.values[0]) == ValueKind::kTensor;
      case c10::TypeKind::IntType:
        return kind_of(output.values[0]) == ValueKind::kInt;
      case c10::TypeKind::BoolType:
        return kind_of(output.values[0]) == ValueKind::kBool;
      case c10::TypeKind::FloatType:
        return kind_of(output.values[0]) == ValueKind::kFloat;
      case c10::TypeKind::NumberType:
        return kind_of(output.values[0]) != ValueKind::kTensor;
      default:
        return false;
    }
  }

  const Program& program_;
  const Node& node_;
};

}  // namespace

std::string title_of(const Program& program, const Node& node) {
  const std::string module =
      node.stack < 0 ? "" : program.stacks[static_cast<size_t>(node.stack)].back().path;
  return fmt::format("{}: {} (node {}, in module \"{}\")", program.label,
                     printable_name(node.target), printable_name(node.name),
                     printable_name(module));
}

std::vector<Operation> resolve_operations(const Program& program) {
  std::vector<Operation> operations;
  operations.reserve(program.nodes.size());
  for (const Node& node : program.nodes) {
    operations.push_back(Resolver(program, node).resolve());
  }
  return operations;
}

}  // namespace fsdp2::exported
