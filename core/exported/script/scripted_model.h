// A TorchScript file (torch.jit.save of a scripted or traced module) as a module tree that is
// sharded and trained like any other.
//
// The file's code is a program. LibTorch parses and compiles it, and is not made for code that
// somebody wrote to break it; operators that open files or take memory of others are refused. All
// the rest of the file is read as data.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>

#include "core/nn/module.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::exported {

struct ScriptedModel {
  std::shared_ptr<nn::Module> module;           // with deferred parameters
  std::shared_ptr<nn::ParameterSource> values;  // of the file
  bool draws_random_numbers = false;
};

// dtype: of the parameters; unset: as they are in the file. Errors: kNotFound, kIo; kCorruptData,
// kUnsupported, naming the file and the module.
ScriptedModel load_script(const std::string& path, std::optional<at::ScalarType> dtype);

}  // namespace fsdp2::exported
