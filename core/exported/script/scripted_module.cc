#include "core/exported/script/scripted_module.h"

#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"
#include "core/exported/script/script_lines.h"
#include "core/exported/script/script_views.h"

namespace fsdp2::exported {

namespace {

using ckpt::printable_name;

constexpr std::array<std::string_view, 3> kLists = {"ModuleList", "ModuleDict", "Sequential"};

bool is_list(const nn::Module& module) {
  return dynamic_cast<const ScriptedList*>(&module) != nullptr ||
         std::find(kLists.begin(), kLists.end(), module.kind()) != kLists.end();
}

void add_kinds_in_lists(const nn::Module& module, std::vector<std::string>& kinds) {
  for (const auto& [name, child] : module.child_modules()) {
    if (!is_list(module) || is_list(*child)) {
      add_kinds_in_lists(*child, kinds);
    } else if (!child->parameters().empty() &&
               std::find(kinds.begin(), kinds.end(), child->kind()) == kinds.end()) {
      kinds.push_back(child->kind());
    }
  }
}

// What the object holds at the dotted path, which exists.
c10::IValue value_at(const ScriptObject& object, std::string_view path) {
  const size_t dot = path.find('.');
  c10::IValue value = object->getAttr(std::string(path.substr(0, dot)));
  return dot == std::string_view::npos ? value : value_at(value.toObject(), path.substr(dot + 1));
}

}  // namespace

void ScriptSlots::register_in(torch::nn::Module& holder, const std::string& title) {
  const c10::ClassType& type = *object_->type();
  for (size_t slot = 0; slot < type.numAttributes(); ++slot) {
    const c10::IValue& value = object_->getSlot(slot);
    if (!value.isTensor()) {
      continue;
    }
    const std::string name = type.getAttributeName(slot);
    FSDP2_CHECK(!name.empty() && name.find('.') == std::string::npos, Code::kCorruptData,
                "{}: a tensor has the name '{}', expected one without a dot", title,
                printable_name(name));
    if (type.is_parameter(slot)) {
      holder.register_parameter(name, value.toTensor(), value.toTensor().requires_grad());
      continue;
    }
    holder.register_buffer(name, value.toTensor());
    if (!type.is_buffer(slot)) {
      transient_.insert(name);
    }
  }
}

nn::ComputationLines ScriptSlots::computation_lines() const { return lines_of(object_); }

bool ScriptSlots::is_in_training() const {
  const auto slot = object_->type()->findAttributeSlot(kTrainingMode);
  return !slot || !object_->getSlot(*slot).isBool() || object_->getSlot(*slot).toBool();
}

void ScriptSlots::set_training(bool on) {
  const auto slot = object_->type()->findAttributeSlot(kTrainingMode);
  if (slot && object_->getSlot(*slot).isBool()) {
    object_->setSlot(*slot, on);
  }
}

void ScriptedList::train(bool on) {
  nn::ModuleList::train(on);
  set_training(on);
}

ScriptedModule::ScriptedModule(ScriptObject object, ScriptPlan plan, std::string title)
    : nn::Module(object->type()->name()->name()),
      ScriptSlots(std::move(object)),
      plan_(std::move(plan)),
      title_(std::move(title)) {
  register_in(*this, title_);
  for (const ScriptStep& step : plan_.steps) {
    std::vector<at::Tensor>& tensors = parameters_read_.emplace_back();
    for (const std::string& path : step.parameters) {
      const c10::IValue value = value_at(this->object(), path);
      if (value.isTensor()) {
        tensors.push_back(value.toTensor());
      }
    }
  }
}

void ScriptedModule::train(bool on) {
  nn::Module::train(on);
  set_training(on);
}

nn::InputCount ScriptedModule::input_count() const {
  const auto is_needed = [](const c10::Argument& argument) { return !argument.default_value(); };
  const auto required = std::count_if(plan_.arguments.begin(), plan_.arguments.end(), is_needed);
  return {static_cast<size_t>(required), plan_.arguments.size()};
}

void ScriptedModule::check_inputs(const nn::Values& inputs) const {
  const nn::InputCount count = input_count();
  FSDP2_CHECK(inputs.size() >= count.required && inputs.size() <= count.most,
              Code::kInvalidArgument, "{}: expected {} to {} inputs, found {}", title_,
              count.required, count.most, inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const c10::Argument& argument = plan_.arguments[i];
    FSDP2_CHECK(inputs[i].type()->isSubtypeOf(*argument.type()), Code::kInvalidArgument,
                "{}: its input {} is of type {}, found {}", title_, printable_name(argument.name()),
                argument.type()->str(), inputs[i].type()->str());
  }
}

std::vector<std::string> ScriptedModule::no_split_kinds() const {
  std::vector<std::string> kinds;
  add_kinds_in_lists(*this, kinds);
  return kinds;
}

nn::ComputationLines ScriptedModule::computation_lines() const {
  nn::ComputationLines lines = plan_.lines;
  const nn::ComputationLines held = ScriptSlots::computation_lines();
  lines.insert(lines.end(), held.begin(), held.end());
  return lines;
}

void ScriptedModule::check_may_run_again() const {
  constexpr char kAdvice[] =
      "changes in place, so that it cannot run again: checkpoint the activations of others";
  FSDP2_CHECK(plan_.effects.changed_input.empty(), Code::kUnsupported,
              "{}: the input {} is what its forward {}", title_, plan_.effects.changed_input,
              kAdvice);
  check_keeps_attributes(kAdvice);
}

void ScriptedModule::check_keeps_attributes(const char* advice) const {
  FSDP2_CHECK(plan_.effects.changed_attribute.empty(), Code::kUnsupported,
              "{}: the buffer {} is what its forward {}", title_, plan_.effects.changed_attribute,
              advice);
  for (const auto& [path, module] : called_) {
    module.lock()->check_keeps_attributes(advice);
  }
}

std::vector<at::Tensor> ScriptedModule::borrowed_parameters() const {
  std::vector<at::Tensor> known = parameters(/*recurse=*/false);
  const auto own = static_cast<ptrdiff_t>(known.size());
  for (const auto& of_step : parameters_read_) {
    for (const at::Tensor& read : of_step) {
      if (std::none_of(known.begin(), known.end(),
                       [&](const at::Tensor& tensor) { return tensor.is_same(read); })) {
        known.push_back(read);
      }
    }
  }
  return {known.begin() + own, known.end()};
}

bool ScriptedModule::draws_random_numbers() const {
  return plan_.effects.draws_random_numbers ||
         std::any_of(called_.begin(), called_.end(),
                     [](const auto& entry) { return entry.second.lock()->draws_random_numbers(); });
}

c10::IValue ScriptedModule::forward(nn::Values inputs) {
  check_inputs(inputs);
  nn::Values frame(plan_.frame_size);
  for (size_t i = 0; i < plan_.inputs.size(); ++i) {
    frame[static_cast<size_t>(plan_.inputs[i])] =
        i < inputs.size() ? std::move(inputs[i]) : *plan_.arguments[i].default_value();
  }
  for (size_t number = 0; number < plan_.steps.size(); ++number) {
    const ScriptStep& step = plan_.steps[number];
    torch::jit::Stack stack;
    if (step.call.empty()) {
      stack.emplace_back(object());
    }
    for (const FrameRead& read : step.reads) {
      c10::IValue& value = frame[static_cast<size_t>(read.place)];
      stack.push_back(read.is_last ? std::move(value) : value);
    }
    if (step.call.empty()) {
      run_code(number, stack);
    } else {
      c10::IValue output = run_call(step, std::move(stack));
      stack.assign(1, std::move(output));
    }
    for (size_t i = 0; i < step.writes.size(); ++i) {
      if (step.writes[i] >= 0) {
        frame[static_cast<size_t>(step.writes[i])] = std::move(stack.at(i));
      }
    }
  }
  return std::move(frame[static_cast<size_t>(plan_.output)]);
}

c10::IValue ScriptedModule::run_call(const ScriptStep& step, nn::Values inputs) const {
  const auto module = called_.at(step.call).lock();
  FSDP2_CHECK(module != nullptr, Code::kWrongState, "{}: the module \"{}\" is destroyed", title_,
              step.call);
  if (!outputs_may_change_) {
    return (*module)(std::move(inputs));
  }
  const MemoryOfInputs memory(inputs);
  return memory.copy_hooked_views((*module)(std::move(inputs)), *module);
}

void ScriptedModule::run_code(size_t number, torch::jit::Stack& stack) const {
  for (const at::Tensor& parameter : parameters_read_[number]) {
    FSDP2_CHECK(!nn::has_no_memory(parameter), Code::kWrongState,
                "{}: a parameter [{}] is used outside of the module that holds it, whose sharding "
                "has freed it: shard a module around both uses, not this one",
                title_, fmt::join(parameter.sizes(), ", "));
  }
  const c10::AutoGradMode callers(c10::GradMode::is_enabled());  // back also if code throws
  try {
    plan_.steps[number].code->run(stack);
  } catch (const std::exception&) {
    const std::string text = script_error_text();
    const bool is_memory = text.find("allocate memory") != std::string::npos ||
                           text.find("out of memory") != std::string::npos;
    fail(is_memory ? Code::kOutOfMemory : Code::kInvalidArgument, "{}: {}", title_, text);
  }
}

}  // namespace fsdp2::exported
