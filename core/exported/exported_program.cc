#include "core/exported/exported_program.h"

#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"
#include "core/exported/exported_module.h"
#include "core/exported/machine.h"
#include "core/exported/program/program_archive.h"
#include "core/exported/program/program_reader.h"
#include "core/exported/program/program_weights.h"
#include "core/exported/script/script_archive.h"
#include "core/exported/script/scripted_model.h"

namespace fsdp2::exported {

namespace {

using ckpt::printable_name;
using Tensors = std::map<std::string, at::Tensor>;  // by identity: one for the names of a tie

class Loader {
 public:
  Loader(const std::string& path, const LoadOptions& options)
      : archive_(std::make_shared<const ProgramArchive>(path)),
        dtype_(options.dtype),
        machine_(
            std::make_shared<Machine>(read_program(archive_->program(), path), options.fuses)) {}

  ExportedModel load() {
    ExportedModel model;
    model.draws_random_numbers = machine_->draws_random_numbers();
    const std::shared_ptr<ExportedProgram> root = make_modules(machine_);
    const auto modules = root->named_modules();
    Tensors tensors;
    for (const BoundTensor& parameter : machine_->program().parameters) {
      const NamedValue& value = find(parameter);
      const at::Tensor tensor = parameter_of(parameter, value, tensors);
      machine_->bind(parameter, tensor);
      register_in(holder_of(parameter, modules), parameter, tensor);
      model.has_values = model.has_values && value.has_values;
    }
    for (const auto* list : {&machine_->program().buffers, &machine_->program().constants}) {
      for (const BoundTensor& buffer : *list) {
        machine_->bind(buffer, values_of(buffer, tensors));
      }
    }
    model.module = root;
    model.values = std::make_shared<ProgramWeights>(archive_);
    return model;
  }

 private:
  const NamedValue& find(const BoundTensor& tensor) const {
    const bool is_weight = tensor.is_persistent;
    const char* config = is_weight ? kWeightsConfig : kConstantsConfig;
    const NamedValue* value =
        is_weight ? archive_->find_weight(tensor.name) : archive_->find_constant(tensor.name);
    FSDP2_CHECK(value != nullptr, Code::kCorruptData, "{}: {} has no entry for {}",
                archive_->path(), config, printable_name(tensor.name));
    FSDP2_CHECK(value->tensor.dtype == tensor.dtype, Code::kCorruptData,
                "{}: {} is {} in the program, {} in {}", archive_->path(),
                printable_name(tensor.name), c10::toString(tensor.dtype),
                c10::toString(value->tensor.dtype), config);
    return *value;
  }

  at::Tensor parameter_of(const BoundTensor& parameter, const NamedValue& value,
                          Tensors& tensors) const {
    const at::IntArrayRef shape(value.tensor.shape);
    at::Tensor& tensor = tensors[archive_->identity_of(parameter.name, value)];
    if (!tensor.defined()) {
      FSDP2_CHECK(at::isFloatingType(value.tensor.dtype), Code::kUnsupported,
                  "{}: the parameter {} is of type {}, expected floats", archive_->path(),
                  printable_name(parameter.name), c10::toString(value.tensor.dtype));
      tensor = in_context(archive_->path(), [&] {
        return nn::deferred_parameter(shape, dtype_.value_or(value.tensor.dtype));
      });
      tensor.set_requires_grad(value.tensor.requires_grad);
    }
    FSDP2_CHECK(tensor.sizes() == shape, Code::kCorruptData,
                "{}: {} is tied to a parameter of another shape", archive_->path(),
                printable_name(parameter.name));
    return tensor;
  }

  at::Tensor values_of(const BoundTensor& buffer, Tensors& tensors) const {
    const NamedValue& value = find(buffer);
    at::Tensor& tensor = tensors[archive_->identity_of(buffer.name, value)];
    if (!tensor.defined()) {
      tensor = archive_->read(value, buffer.name);
    }
    return tensor;
  }

  using NamedModules = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

  torch::nn::Module& holder_of(const BoundTensor& parameter, const NamedModules& modules) const {
    const size_t dot = parameter.name.rfind('.');
    const auto* module =
        modules.find(dot == std::string::npos ? "" : parameter.name.substr(0, dot));
    FSDP2_CHECK(module != nullptr, Code::kCorruptData,
                "{}: there is no module for the parameter {}", archive_->path(),
                printable_name(parameter.name));
    return **module;
  }

  void register_in(torch::nn::Module& holder, const BoundTensor& parameter,
                   const at::Tensor& tensor) const {
    const std::string name = parameter.name.substr(parameter.name.rfind('.') + 1);
    const bool is_free = !name.empty() &&
                         !holder.named_parameters(/*recurse=*/false).contains(name) &&
                         !holder.named_children().contains(name);
    FSDP2_CHECK(is_free, Code::kCorruptData, "{}: the parameter {} has no name, or that of another",
                archive_->path(), printable_name(parameter.name));
    holder.register_parameter(name, tensor, tensor.requires_grad());
  }

  const std::shared_ptr<const ProgramArchive> archive_;
  const std::optional<at::ScalarType> dtype_;
  const std::shared_ptr<Machine> machine_;
};

}  // namespace

ExportedModel load_exported(const std::string& path, const LoadOptions& options) {
  if (is_script_file(path)) {
    ScriptedModel script = load_script(path, options.dtype);
    return {std::move(script.module), std::move(script.values), true, script.draws_random_numbers};
  }
  return Loader(path, options).load();
}

}  // namespace fsdp2::exported
