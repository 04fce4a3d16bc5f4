#include "core/train/optim/parameter_classes.h"

namespace fsdp2::train {

ParametersOfModules ParametersOfModules::whose_class_has(const nn::Module& root,
                                                         const std::string& part) {
  ParametersOfModules found;
  for (const auto& module : root.modules(/*include_self=*/false)) {
    const auto* ours = dynamic_cast<const nn::Module*>(module.get());
    if (ours != nullptr && ours->kind().find(part) != std::string::npos) {
      found.add(*ours, /*with_those_below=*/false);
    }
  }
  return found;
}

ParametersOfModules ParametersOfModules::of_class(const nn::Module& root, const std::string& name) {
  ParametersOfModules found;
  if (root.is_of_class(name)) {
    found.add(root, /*with_those_below=*/true);
  }
  for (const auto& module : root.modules(/*include_self=*/false)) {
    const auto* ours = dynamic_cast<const nn::Module*>(module.get());
    if (ours != nullptr && ours->is_of_class(name)) {
      found.add(*ours, /*with_those_below=*/true);
    }
  }
  return found;
}

void ParametersOfModules::add(const nn::Module& module, bool with_those_below) {
  for (const at::Tensor& parameter : module.parameters(with_those_below)) {
    parameters_.insert(parameter.unsafeGetTensorImpl());
  }
}

}  // namespace fsdp2::train
