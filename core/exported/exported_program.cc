#include "core/exported/exported_program.h"

#include <c10/core/TensorImpl.h>

#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"
#include "core/exported/dotted_path.h"
#include "core/exported/exported_module.h"
#include "core/exported/machine.h"
#include "core/exported/program/program_archive.h"
#include "core/exported/program/program_reader.h"
#include "core/exported/program/program_weights.h"
#include "core/exported/program/shared_values.h"
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
        machine_(std::make_shared<Machine>(read_program(archive_->program(), path), options.fuses)),
        values_(*archive_) {}

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
      holder_of("parameter", parameter, modules)
          .register_parameter(own_name(parameter.name), tensor, tensor.requires_grad());
      model.has_values = model.has_values && value.has_values;
      parameters_in_[value.tensor.storage].push_back(&parameter);
    }
    std::unordered_set<const c10::TensorImpl*> parameters;
    for (const at::Tensor& parameter : root->parameters()) {
      parameters.insert(parameter.unsafeGetTensorImpl());
    }
    for (const auto* list : {&machine_->program().buffers, &machine_->program().constants}) {
      for (const BoundTensor& tensor : *list) {
        values_.add(find(tensor));
      }
    }
    for (const BoundTensor& buffer : machine_->program().buffers) {
      const at::Tensor tensor = values_of(buffer, tensors);
      machine_->bind(buffer, tensor);
      if (buffer.is_persistent && parameters.count(tensor.unsafeGetTensorImpl()) == 0) {
        holder_of("buffer", buffer, modules).register_buffer(own_name(buffer.name), tensor);
      }
      check_is_no_view_of_a_parameter(buffer);
    }
    for (const BoundTensor& constant : machine_->program().constants) {
      machine_->bind(constant, values_of(constant, tensors));
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

  // Optimizers change a parameter's shards, which are elsewhere.
  void check_is_no_view_of_a_parameter(const BoundTensor& buffer) const {
    const NamedValue& own = find(buffer);
    const auto found = parameters_in_.find(own.tensor.storage);
    if (found == parameters_in_.end() || !own.has_values) {
      return;
    }
    for (const BoundTensor* parameter : found->second) {
      const NamedValue& other = find(*parameter);
      const bool is_view =
          other.is_dense() &&
          (own.is_dense() ? own.overlaps(other) : own.begins_or_ends_in(other)) &&
          archive_->identity_of(buffer.name, own) != archive_->identity_of(parameter->name, other);
      FSDP2_CHECK(!is_view, Code::kUnsupported,
                  "{}: the buffer {} is a view of the parameter {}, and would not change with it: "
                  "export it after clone()",
                  archive_->path(), printable_name(buffer.name), printable_name(parameter->name));
    }
  }

  at::Tensor values_of(const BoundTensor& buffer, Tensors& tensors) {
    const NamedValue& value = find(buffer);
    at::Tensor& tensor = tensors[archive_->identity_of(buffer.name, value)];
    if (!tensor.defined()) {
      tensor = values_.read(value, buffer.name);
    }
    return tensor;
  }

  using NamedModules = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

  // The module to register the tensor in, where its name must still be free.
  torch::nn::Module& holder_of(std::string_view what, const BoundTensor& tensor,
                               const NamedModules& modules) const {
    const auto* module = modules.find(parent_path(tensor.name));
    FSDP2_CHECK(module != nullptr, Code::kCorruptData, "{}: there is no module for the {} {}",
                archive_->path(), what, printable_name(tensor.name));
    const std::string name = own_name(tensor.name);
    const bool is_free = !name.empty() &&
                         !(*module)->named_parameters(/*recurse=*/false).contains(name) &&
                         !(*module)->named_buffers(/*recurse=*/false).contains(name) &&
                         !(*module)->named_children().contains(name);
    FSDP2_CHECK(is_free, Code::kCorruptData, "{}: the {} {} has no name, or that of another",
                archive_->path(), what, printable_name(tensor.name));
    return **module;
  }

  const std::shared_ptr<const ProgramArchive> archive_;
  const std::optional<at::ScalarType> dtype_;
  const std::shared_ptr<Machine> machine_;
  SharedValues values_;
  std::map<std::string, std::vector<const BoundTensor*>> parameters_in_;  // by record
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
