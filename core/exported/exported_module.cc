#include "core/exported/exported_module.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"
#include "core/exported/dotted_path.h"
#include "core/exported/input_checks.h"
#include "core/exported/program/program_lines.h"
#include "core/nn/module_list.h"

namespace fsdp2::exported {

namespace {

using Modules = std::unordered_map<std::string, std::shared_ptr<nn::Module>>;  // by path

// By path; modules that no node runs in have none.
std::unordered_map<std::string, std::string> kinds_of(const Program& program) {
  std::unordered_map<std::string, std::string> kinds;
  for (const CallStack& stack : program.stacks) {
    for (const OpenCall& call : stack) {
      kinds.emplace(call.path, call.kind);
    }
  }
  return kinds;
}

// What no node runs in holds modules, or parameters that others use: as a list, it is called by
// nobody, and cannot be a unit by itself.
bool is_list(const nn::Module& module) {
  return dynamic_cast<const nn::ModuleList*>(&module) != nullptr;
}

void add_kinds_in_lists(const nn::Module& module, std::vector<std::string>& kinds) {
  for (const auto& [name, child] : module.child_modules()) {
    if (!is_list(module) || is_list(*child)) {
      add_kinds_in_lists(*child, kinds);
    } else if (std::find(kinds.begin(), kinds.end(), child->kind()) == kinds.end()) {
      kinds.push_back(child->kind());
    }
  }
}

at::Device device_of(const Machine& machine, const nn::Values& inputs) {
  const auto& parameters = machine.program().parameters;
  if (!parameters.empty()) {
    return machine.bound(parameters.front()).device();
  }
  return inputs.empty() ? at::Device(at::kCPU) : inputs.front().toTensor().device();
}

}  // namespace

ExportedModule::ExportedModule(std::string kind, std::shared_ptr<Machine> machine,
                               std::vector<size_t> calls)
    : nn::Module(std::move(kind)), machine_(std::move(machine)), calls_(std::move(calls)) {}

void ExportedModule::check_may_run_again() const {
  for (const size_t call : calls_) {
    machine_->check_may_run_again(call);
  }
}

std::vector<at::Tensor> ExportedModule::borrowed_parameters() const {
  std::vector<at::Tensor> known = parameters(/*recurse=*/false);
  const size_t own = known.size();
  for (const size_t call : calls_) {
    for (const at::Tensor& read : machine_->parameters_read(call)) {
      if (std::none_of(known.begin(), known.end(),
                       [&](const at::Tensor& tensor) { return tensor.is_same(read); })) {
        known.push_back(read);
      }
    }
  }
  return {known.begin() + static_cast<ptrdiff_t>(own), known.end()};
}

c10::IValue ExportedModule::forward(nn::Values inputs) {
  const bool is_call = !inputs.empty() && inputs.front().isInt();
  FSDP2_CHECK(is_call, Code::kUnsupported,
              "{}: a {} inside of an exported program runs only as a part of it",
              machine_->program().label, kind());
  const auto call = static_cast<size_t>(inputs.front().toInt());
  inputs.erase(inputs.begin());
  return machine_->run(call, std::move(inputs));
}

nn::InputCount ExportedProgram::input_count() const {
  const size_t count = machine().program().inputs.size();
  return {count, count};
}

void ExportedProgram::check_inputs(const nn::Values& inputs) const {
  const Program& program = machine().program();
  check_program_inputs(program, inputs);
  for (const BoundTensor& parameter : program.parameters) {
    const at::ScalarType found = machine().bound(parameter).scalar_type();
    FSDP2_CHECK(found == parameter.dtype, Code::kInvalidArgument,
                "{}: the program computes with {} in {}, found {}: make parameters or the sharding "
                "policy's param_dtype {}, or export the model in {}",
                program.label, parameter.name, c10::toString(parameter.dtype), c10::toString(found),
                c10::toString(parameter.dtype), c10::toString(found));
  }
}

std::vector<std::string> ExportedProgram::no_split_kinds() const {
  std::vector<std::string> kinds;
  add_kinds_in_lists(*this, kinds);
  return kinds;
}

nn::ComputationLines ExportedProgram::computation_lines() const {
  const Program& program = machine().program();
  nn::ComputationLines lines = lines_of(program);
  lines.emplace_back("operators", machine().fuses() ? "fused" : "plain");
  std::unordered_map<const c10::TensorImpl*, std::string> parameters;
  for (const BoundTensor& parameter : program.parameters) {
    parameters.emplace(machine().bound(parameter).unsafeGetTensorImpl(), parameter.name);
  }
  for (const auto& [what, list] :
       {std::pair("buffer", &program.buffers), std::pair("constant", &program.constants)}) {
    for (const BoundTensor& tensor : *list) {
      const at::Tensor& bound = machine().bound(tensor);
      const auto tied = parameters.find(bound.unsafeGetTensorImpl());
      lines.emplace_back(fmt::format("{} {}", what, ckpt::printable_name(tensor.name)),
                         tied == parameters.end()
                             ? nn::line_of(bound)
                             : "the parameter " + ckpt::printable_name(tied->second));
    }
  }
  return lines;
}

c10::IValue ExportedProgram::forward(nn::Values inputs) {
  check_inputs(inputs);
  machine().move_to(device_of(machine(), inputs));
  return machine().run(0, std::move(inputs));
}

std::shared_ptr<ExportedProgram> make_modules(const std::shared_ptr<Machine>& machine) {
  const Program& program = machine->program();
  const auto kinds = kinds_of(program);
  std::unordered_map<std::string, std::vector<size_t>> calls;
  for (size_t i = 0; i < machine->calls().size(); ++i) {
    calls[machine->calls()[i].path].push_back(i);
  }
  const auto root_kind = kinds.find("");
  auto root = std::make_shared<ExportedProgram>(
      root_kind == kinds.end() ? "ExportedProgram" : root_kind->second, machine, calls[""]);
  Modules modules = {{"", root}};
  for (const std::string& path : program.modules) {
    if (path.empty()) {
      continue;
    }
    const auto kind = kinds.find(path);
    std::shared_ptr<nn::Module> module;
    if (kind == kinds.end()) {
      module = std::make_shared<nn::ModuleList>();
    } else {
      module = std::make_shared<ExportedModule>(kind->second, machine, calls[path]);
    }
    modules.at(parent_path(path))->register_module(own_name(path), module);
    modules.emplace(path, std::move(module));
  }
  std::vector<std::weak_ptr<nn::Module>> by_call;
  for (const ModuleCall& call : machine->calls()) {
    by_call.push_back(modules.at(call.path));
  }
  machine->set_modules(std::move(by_call));
  return root;
}

}  // namespace fsdp2::exported
