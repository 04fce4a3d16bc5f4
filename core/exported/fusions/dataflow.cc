#include "core/exported/fusions/dataflow.h"

#include "core/base/text.h"

namespace fsdp2::exported {

namespace {

constexpr std::string_view kAten = "torch.ops.aten.";

}  // namespace

Dataflow::Dataflow(const Program& program, const std::vector<Operation>& operations)
    : operations_(operations),
      makers_(program.values.size(), nullptr),
      readers_(program.values.size()),
      is_result_(program.values.size(), false) {
  for (size_t i = 0; i < operations.size(); ++i) {
    const Operation& operation = operations[i];
    for (const OperationInput& input : operation.inputs) {
      for (const ValueId value : input.argument.values) {
        if (value != kNoValue) {
          readers_[static_cast<size_t>(value)].push_back(static_cast<int32_t>(i));
        }
      }
    }
    const std::vector<Output>& outputs = operation.node->outputs;
    if (operation.op && outputs.size() == 1 && !outputs[0].is_list &&
        outputs[0].values.size() == 1) {
      makers_[static_cast<size_t>(outputs[0].values[0])] = &operation;
    }
  }
  for (const ValueId value : program.outputs) {
    is_result_[static_cast<size_t>(value)] = true;
  }
}

const Operation* Dataflow::maker(ValueId value) const {
  return value == kNoValue ? nullptr : makers_[static_cast<size_t>(value)];
}

const Operation* Dataflow::maker(ValueId value, std::string_view name) const {
  const Operation* operation = maker(value);
  return operation != nullptr && is_operator(*operation, name) ? operation : nullptr;
}

bool is_operator(const Operation& operation, std::string_view name) {
  const std::string_view target = operation.node->target;
  return operation.op && starts_with(target, kAten) && target.substr(kAten.size()) == name;
}

ValueId tensor_at(const Operation& operation, size_t i) {
  const OperationInput& input = operation.inputs[i];
  const bool is_tensor =
      input.argument.kind == Argument::Kind::kValue && input.as == OperationInput::As::kGiven;
  return is_tensor ? input.argument.values[0] : kNoValue;
}

const c10::IValue* constant_at(const Operation& operation, size_t i) {
  const Argument& argument = operation.inputs[i].argument;
  return argument.kind == Argument::Kind::kConstant ? &argument.constant : nullptr;
}

bool is_int_at(const Operation& operation, size_t i, int64_t expected) {
  const c10::IValue* constant = constant_at(operation, i);
  return constant != nullptr && constant->isInt() && constant->toInt() == expected;
}

std::optional<double> number_at(const Operation& operation, size_t i) {
  const c10::IValue* constant = constant_at(operation, i);
  if (constant == nullptr || !(constant->isScalar() || constant->isTensor())) {
    return std::nullopt;
  }
  return constant->isTensor() ? constant->toTensor().item<double>()
                              : constant->toScalar().to<double>();
}

std::array<std::pair<ValueId, ValueId>, 2> either_order(const Operation& operation) {
  const ValueId first = tensor_at(operation, 0);
  const ValueId second = tensor_at(operation, 1);
  return {{{first, second}, {second, first}}};
}

}  // namespace fsdp2::exported
