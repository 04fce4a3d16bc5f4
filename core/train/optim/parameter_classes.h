// Which parameters belong to modules of a class.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <set>
#include <string>

#include "core/fsdp/fully_shard.h"
#include "core/nn/module.h"

namespace fsdp2::train {

class ParametersOfModules {
 public:
  // Those that modules below root hold themselves, of classes that have `part` in their names.
  static ParametersOfModules whose_class_has(const nn::Module& root, const std::string& part);
  // All at and below modules of this class (Module::is_of_class), root among them.
  static ParametersOfModules of_class(const nn::Module& root, const std::string& name);

  // A shard keeps the module's own tensor as its unsharded one.
  bool has(const fsdp::ShardedParam& param) const {
    return parameters_.count(param.unsharded().unsafeGetTensorImpl()) > 0;
  }

 private:
  void add(const nn::Module& module, bool with_those_below);

  std::set<const c10::TensorImpl*> parameters_;
};

}  // namespace fsdp2::train
