// The objects that a TorchScript file holds: those of its classes, with what their slots say of
// them. A value that is not of its slot's type is an error, and no code of the file runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/ckpt/value/python_value.h"
#include "core/exported/script/script_archive.h"
#include "core/exported/script/script_types.h"

namespace fsdp2::exported {

using ScriptObject = c10::intrusive_ptr<c10::ivalue::Object>;

// The attribute that says of a module whether it is in training mode.
inline constexpr char kTrainingMode[] = "training";

struct StoredParameter {
  std::string name;  // dotted
  ckpt::StoredTensor value;
};

class ScriptObjects {
 public:
  // dtype: of the parameters; unset: as they are stored.
  ScriptObjects(const ScriptArchive& archive, const ScriptTypes& types,
                std::optional<at::ScalarType> dtype)
      : archive_(archive), types_(types), dtype_(dtype) {}

  // The module, whose parameters are deferred ones: one tensor for all places of a tie. Other
  // tensors have their values. Errors: kCorruptData, kUnsupported.
  ScriptObject make_root();
  // After make_root: each name of a tie.
  const std::vector<StoredParameter>& parameters() const { return parameters_; }

 private:
  // path: of the module, or of the attribute, that the value is.
  c10::IValue make(const ckpt::PythonValue& value, const c10::TypePtr& type,
                   const std::string& path);
  c10::IValue make_list(const ckpt::PythonValue& value, const c10::ListType& type,
                        const std::string& path);
  c10::IValue make_dict(const ckpt::PythonValue& value, const c10::DictType& type,
                        const std::string& path);
  c10::IValue make_tuple(const ckpt::PythonValue& value, const c10::TupleType& type,
                         const std::string& path);
  c10::IValue make_object(const ckpt::PythonValue& value, const c10::TypePtr& type,
                          const std::string& path);
  c10::IValue make_device(const ckpt::PythonValue& value, const std::string& path) const;
  at::Tensor tensor_of(const ckpt::StoredTensor& value);
  at::Tensor parameter_of(const ckpt::StoredTensor& value, const std::string& path);
  [[noreturn]] void refuse(const ckpt::PythonValue& value, const c10::Type& type,
                           const std::string& path) const;

  const ScriptArchive& archive_;
  const ScriptTypes& types_;
  const std::optional<at::ScalarType> dtype_;
  std::vector<StoredParameter> parameters_;
  std::map<std::string, at::Tensor> deferred_;  // by identity: parameters
  std::map<std::string, at::Tensor> tensors_;   // the others
};

}  // namespace fsdp2::exported
