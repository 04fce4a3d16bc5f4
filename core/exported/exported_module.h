// The modules of an exported program: a tree with the names, classes and parameters that the model
// had in Python.
//
// The root's inputs are the program's. The others run only as parts of it: their first input is the
// number of their call, so that a module that is called several times, or runs again in backward,
// knows which of its calls it is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/exported/machine.h"
#include "core/nn/computation.h"
#include "core/nn/module.h"
#include "core/nn/parameter_reads.h"
#include "core/nn/second_run.h"

namespace fsdp2::exported {

class ExportedModule : public nn::Module,
                       public nn::SecondRun,
                       public nn::ParameterBorrower,
                       public nn::UntrackedReads {
 public:
  // calls: those of this module.
  ExportedModule(std::string kind, std::shared_ptr<Machine> machine, std::vector<size_t> calls);

  void check_may_run_again() const override;
  std::vector<at::Tensor> borrowed_parameters() const override;

 protected:
  c10::IValue forward(nn::Values inputs) override;
  Machine& machine() const { return *machine_; }

 private:
  const std::shared_ptr<Machine> machine_;
  const std::vector<size_t> calls_;
};

class ExportedProgram final : public ExportedModule, public nn::Computation {
 public:
  using ExportedModule::ExportedModule;

  nn::InputCount input_count() const override;
  // Also throws kInvalidArgument if the parameters are in other dtypes than the program's.
  void check_inputs(const nn::Values& inputs) const override;
  // The classes of the modules in lists, such as "LlamaDecoderLayer".
  std::vector<std::string> no_split_kinds() const override;
  nn::ComputationLines computation_lines() const override;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

// The tree of the machine's program, without parameters; the machine knows its modules from then
// on.
std::shared_ptr<ExportedProgram> make_modules(const std::shared_ptr<Machine>& machine);

}  // namespace fsdp2::exported
