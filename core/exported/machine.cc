#include "core/exported/machine.h"

#include <ATen/core/List.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"
#include "core/exported/fusions/find_fusions.h"
#include "core/nn/meta_tensor.h"
#include "core/operators/run_operator.h"
#include "core/operators/wrapped_number.h"

namespace fsdp2::exported {

namespace {

c10::IValue one_or_tuple(nn::Values values) {
  return values.size() == 1 ? std::move(values.front())
                            : c10::IValue(c10::ivalue::Tuple::create(std::move(values)));
}

// Attention and dropout draw nothing with a probability of 0, or in eval mode.
bool draws(const Operation& operation) {
  if (!operation.op || !operation.op->hasTag(at::Tag::nondeterministic_seeded)) {
    return false;
  }
  for (size_t i = 0; i < operation.inputs.size(); ++i) {
    const std::string& name = operation.op->schema().arguments()[i].name();
    const c10::IValue& constant = operation.inputs[i].argument.constant;
    const bool is_zero = constant.isDouble() && constant.toDouble() == 0.0;
    const bool is_false = constant.isBool() && !constant.toBool();
    if ((is_zero && (name == "p" || name == "dropout_p" || name == "dropout")) ||
        (is_false && name == "train")) {
      return false;
    }
  }
  return true;
}

bool has_kind(const c10::IValue& value, ValueKind kind) {
  switch (kind) {
    case ValueKind::kTensor:
      return value.isTensor();
    case ValueKind::kInt:
      return value.isInt();
    case ValueKind::kBool:
      return value.isBool();
    case ValueKind::kFloat:
      return value.isDouble();
  }
  return false;
}

std::vector<Fusion> fusions_of(const Program& program, const std::vector<Operation>& operations,
                               const std::vector<ModuleCall>& calls) {
  const std::vector<int32_t> call_of_node = calls_of_nodes(program, calls);
  const std::vector<bool> is_bound = bound_values(program);
  return find_fusions(program, operations, written_values(program, operations),
                      [&](const std::vector<int32_t>& nodes) {
                        return may_join(program, calls, call_of_node, is_bound, nodes);
                      });
}

// torch.export ends what was `self.count += 1` with such a copy. It would be a change to autograd,
// which could then not use what it has kept of the tensor.
bool copies_onto_itself(const torch::jit::Stack& stack) {
  return stack[0].toTensor().is_same(stack[1].toTensor());
}

// What fails names the node.
template <typename Body>
auto run_node(const Program& program, const Node& node, const Body& body) {
  try {
    return body();
  } catch (const std::exception&) {
    const Error error = current_exception_as_error();
    fail(error.code(), "{}: {}", title_of(program, node), error.message());
  }
}

// Tensors that share memory share it on the other device.
class Mover {
 public:
  explicit Mover(at::Device device) : device_(device) {}

  // The tensor stays the one that a module has.
  void move(const at::Tensor& tensor) {
    if (tensor.device() == device_) {
      return;
    }
    if (device_.is_meta()) {
      nn::turn_into_meta(tensor);
    } else {
      tensor.set_data(moved(tensor));
    }
  }

 private:
  at::Tensor moved(const at::Tensor& tensor) {
    const c10::Storage storage = tensor.storage();
    at::Tensor& memory = memory_[{storage.unsafeGetStorageImpl(), tensor.scalar_type()}];
    if (!memory.defined()) {
      const auto numel = static_cast<int64_t>(storage.nbytes() / tensor.element_size());
      memory = at::empty({0}, tensor.options()).set_(storage, 0, {numel}, {1}).to(device_);
    }
    return at::empty({0}, memory.options())
        .set_(memory.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
  }

  const at::Device device_;
  std::map<std::pair<const c10::StorageImpl*, at::ScalarType>, at::Tensor> memory_;
};

}  // namespace

Machine::Machine(Program program, bool fuses)
    : program_(std::move(program)),
      fuses_(fuses),
      operations_(resolve_operations(program_)),
      calls_(find_module_calls(program_)),
      fusions_(fuses ? fusions_of(program_, operations_, calls_) : std::vector<Fusion>()),
      plans_(plan_calls(program_, calls_, operations_, fusions_)),
      writes_(find_writes(program_, operations_)),
      outside_writes_(find_outside_writes(program_, calls_, writes_)),
      bound_(program_.values.size()),
      is_parameter_(program_.values.size(), false) {
  for (const BoundTensor& parameter : program_.parameters) {
    is_parameter_[static_cast<size_t>(parameter.value)] = true;
  }
  check_writes(program_, writes_);
}

void Machine::bind(const BoundTensor& to, const at::Tensor& tensor) {
  bound_[static_cast<size_t>(to.value)] = tensor;
}

void Machine::move_to(at::Device device) {
  device_ = device;
  Mover mover(device);
  for (const auto* list : {&program_.buffers, &program_.constants}) {
    for (const BoundTensor& entry : *list) {
      mover.move(bound_[static_cast<size_t>(entry.value)]);
    }
  }
}

std::vector<at::Tensor> Machine::parameters_read(size_t call) const {
  std::vector<at::Tensor> parameters;
  for (const Step& step : plans_[call].steps) {
    for (const ReadPlace& place : step.reads) {
      if (place.is_bound && is_parameter_[static_cast<size_t>(place.index)]) {
        parameters.push_back(bound_[static_cast<size_t>(place.index)]);
      }
    }
  }
  return parameters;
}

bool Machine::draws_random_numbers() const {
  return std::any_of(operations_.begin(), operations_.end(), draws);
}

void Machine::check_may_run_again(size_t call) const {
  if (const Write* write = outside_writes_[call]) {
    fail(Code::kUnsupported,
         "{}: changes in place what was there before its module ran, so that the module cannot run "
         "again: checkpoint the activations of others",
         title_of(program_, *write->operation->node));
  }
}

c10::IValue Machine::run(size_t call, nn::Values inputs) const {
  const CallPlan& plan = plans_[call];
  FSDP2_CHECK(inputs.size() == plan.inputs.size(), Code::kInvalidArgument,
              "{}: module \"{}\": expected {} inputs, found {}", program_.label, calls_[call].path,
              plan.inputs.size(), inputs.size());
  Frame frame(plan.frame_size);
  for (size_t i = 0; i < inputs.size(); ++i) {
    frame[static_cast<size_t>(plan.inputs[i])] = std::move(inputs[i]);
  }
  ModeScope mode(device_.type());
  for (const Step& step : plan.steps) {
    run_step(step, frame, mode);
  }
  nn::Values outputs;
  for (const ReadPlace& place : plan.outputs) {
    outputs.push_back(read(place, frame));
  }
  return one_or_tuple(std::move(outputs));
}

c10::IValue Machine::read(const ReadPlace& place, Frame& frame) const {
  const auto index = static_cast<size_t>(place.index);
  if (place.is_bound) {
    check_gathered(bound_[index], place.index);
    return bound_[index];
  }
  return place.is_last ? std::move(frame[index]) : frame[index];
}

// Operators would crash on memory that is not there.
void Machine::check_gathered(const at::Tensor& parameter, ValueId value) const {
  FSDP2_CHECK(!nn::has_no_memory(parameter), Code::kWrongState,
              "{}: {} is used outside of the module that holds it, whose sharding has freed it: "
              "shard a module around both uses, not this one",
              program_.label,
              ckpt::printable_name(program_.values[static_cast<size_t>(value)].name));
}

void Machine::run_step(const Step& step, Frame& frame, ModeScope& mode) const {
  if (step.operation != nullptr) {
    mode.enter(program_.modes[static_cast<size_t>(step.operation->node->mode)]);
    run_operation(step, frame);
    return;
  }
  if (step.fusion == nullptr) {
    mode.enter(Mode());
    run_call(step, frame);
    return;
  }
  mode.enter(program_.modes[static_cast<size_t>(last_node(*step.fusion).mode)]);
  if (!run_fusion(step, frame)) {
    for (const Step& plain : step.plain) {
      run_step(plain, frame, mode);
    }
  }
  forget_last(step.reads, frame);
}

void Machine::forget_last(const std::vector<ReadPlace>& places, Frame& frame) {
  for (const ReadPlace& place : places) {
    if (place.is_last) {
      frame[static_cast<size_t>(place.index)] = c10::IValue();
    }
  }
}

const Node& Machine::last_node(const Fusion& fusion) const {
  return program_.nodes[static_cast<size_t>(fusion.nodes.back())];
}

bool Machine::are_bare(const std::vector<Step>& steps) const {
  return std::all_of(steps.begin(), steps.end(), [&](const Step& step) {
    const auto module = step.call < 0 ? nullptr : modules_[static_cast<size_t>(step.call)].lock();
    return step.call < 0 ||
           (module != nullptr && module->hooks().empty() && module->forward_wrapper() == nullptr);
  });
}

bool Machine::run_fusion(const Step& step, Frame& frame) const {
  if (!are_bare(step.plain)) {
    return false;
  }
  std::vector<at::Tensor> inputs;
  for (const ReadPlace& place : step.reads) {
    const ReadPlace kept = {place.index, place.is_bound, /*is_last=*/false};
    inputs.push_back(read(kept, frame).toTensor());
  }
  at::Tensor result =
      run_node(program_, last_node(*step.fusion), [&] { return step.fusion->compute(inputs); });
  if (!result.defined()) {
    return false;
  }
  if (step.writes.front() >= 0) {
    frame[static_cast<size_t>(step.writes.front())] = std::move(result);
  }
  return true;
}

void Machine::run_call(const Step& step, Frame& frame) const {
  nn::Values inputs = {static_cast<int64_t>(step.call)};
  for (const ReadPlace& place : step.reads) {
    inputs.push_back(read(place, frame));
  }
  const auto module = modules_[static_cast<size_t>(step.call)].lock();
  FSDP2_CHECK(module != nullptr, Code::kWrongState, "{}: the module \"{}\" is destroyed",
              program_.label, calls_[static_cast<size_t>(step.call)].path);
  c10::IValue output = (*module)(std::move(inputs));
  std::vector<c10::IValue> results;
  if (step.writes.size() == 1) {
    results.push_back(std::move(output));
  } else {
    results = output.toTupleRef().elements().vec();
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (step.writes[i] >= 0) {
      frame[static_cast<size_t>(step.writes[i])] = std::move(results[i]);
    }
  }
}

void Machine::run_operation(const Step& step, Frame& frame) const {
  const Operation& operation = *step.operation;
  torch::jit::Stack stack;
  push_inputs(step, frame, stack);
  run_node(program_, *operation.node, [&] {
    if (operation.is_copy && copies_onto_itself(stack)) {
      stack.resize(1);
    } else if (operation.op) {
      operators::run_operator(*operation.op, stack);
    } else if (operation.number != nullptr) {
      c10::IValue result = operation.number->run(stack);
      stack.assign(1, std::move(result));
    } else {
      check_dtype(operation, stack.front().toTensor());
      stack.clear();
    }
    store(step, std::move(stack), frame);
  });
}

void Machine::push_inputs(const Step& step, Frame& frame, torch::jit::Stack& stack) const {
  auto next = step.reads.begin();
  const auto take = [&] { return read(*next++, frame); };
  for (const OperationInput& input : step.operation->inputs) {
    const Argument& argument = input.argument;
    switch (argument.kind) {
      case Argument::Kind::kConstant:
        stack.push_back(argument.constant);
        break;
      case Argument::Kind::kValue: {
        c10::IValue value = take();
        stack.push_back(input.as == OperationInput::As::kTensor ? operators::wrapped_number(value)
                        : input.as == OperationInput::As::kReal
                            ? c10::IValue(operators::as_real(value))
                            : std::move(value));
        break;
      }
      case Argument::Kind::kTensors: {
        c10::List<at::Tensor> list;
        for (size_t i = 0; i < argument.values.size(); ++i) {
          list.push_back(take().toTensor());
        }
        stack.emplace_back(std::move(list));
        break;
      }
      case Argument::Kind::kOptionalTensors: {
        c10::List<std::optional<at::Tensor>> list;
        for (const ValueId value : argument.values) {
          list.push_back(value == kNoValue ? std::nullopt : std::optional(take().toTensor()));
        }
        stack.emplace_back(std::move(list));
        break;
      }
      case Argument::Kind::kInts: {
        std::vector<int64_t> list = argument.ints;
        for (size_t i = 0; i < list.size(); ++i) {
          list[i] = argument.values[i] == kNoValue ? list[i] : take().toInt();
        }
        stack.emplace_back(std::move(list));
        break;
      }
      case Argument::Kind::kDevice:
        stack.emplace_back(device_);
        break;
    }
  }
}

void Machine::check_dtype(const Operation& operation, const at::Tensor& tensor) const {
  FSDP2_CHECK(!operation.only_dtype || tensor.scalar_type() == *operation.only_dtype,
              Code::kInvalidArgument,
              "the program computes in {} here, found {}: it was exported for another precision",
              c10::toString(*operation.only_dtype), c10::toString(tensor.scalar_type()));
}

void Machine::store(const Step& step, std::vector<c10::IValue> results, Frame& frame) const {
  auto next = step.writes.begin();
  const auto put = [&](ValueId value, c10::IValue result) {
    const int32_t place = *next++;
    FSDP2_CHECK(has_kind(result, program_.values[static_cast<size_t>(value)].kind),
                Code::kCorruptData, "a result is a {}, which the program does not say of it",
                result.tagKind());
    if (place >= 0) {
      frame[static_cast<size_t>(place)] = std::move(result);
    }
  };
  const std::vector<Output>& outputs = step.operation->node->outputs;
  FSDP2_CHECK(results.size() == outputs.size(), Code::kCorruptData, "expected {} results, found {}",
              outputs.size(), results.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].is_list) {
      if (!outputs[i].values.empty()) {
        put(outputs[i].values.front(), std::move(results[i]));
      }
      continue;
    }
    const c10::List<at::Tensor> list = results[i].toTensorList();
    FSDP2_CHECK(list.size() == outputs[i].values.size(), Code::kInvalidArgument,
                "expected a list of {} tensors, found {}", outputs[i].values.size(), list.size());
    for (size_t k = 0; k < list.size(); ++k) {
      put(outputs[i].values[k], list.get(k));
    }
  }
}

}  // namespace fsdp2::exported
