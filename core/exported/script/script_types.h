// The classes and functions of a TorchScript file, which LibTorch compiles from their source.
#pragma once

#include <ATen/core/class_type.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/serialization/import_source.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/exported/script/script_archive.h"

namespace fsdp2::exported {

class ScriptTypes {
 public:
  explicit ScriptTypes(std::shared_ptr<const ScriptArchive> archive);
  ScriptTypes(const ScriptTypes&) = delete;
  ScriptTypes& operator=(const ScriptTypes&) = delete;

  // With its methods. Error: kUnsupported if it is not there, or its source does not compile.
  c10::ClassTypePtr find_class(const std::string& name) const;

  const std::shared_ptr<torch::jit::CompilationUnit>& unit() const { return unit_; }

 private:
  std::shared_ptr<torch::jit::Source> source(const std::string& name_space) const;

  const std::shared_ptr<const ScriptArchive> archive_;
  const std::map<std::string, std::string> sources_;  // by namespace
  const std::vector<c10::IValue> constants_;
  const std::shared_ptr<torch::jit::CompilationUnit> unit_;
  const torch::jit::SourceImporter importer_;
};

// One line of the message of the exception that is being handled: LibTorch's compiler and
// interpreter of TorchScript write the code around. Only in a catch block.
std::string script_error_text();

}  // namespace fsdp2::exported
