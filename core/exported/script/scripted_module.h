// The modules of a TorchScript file: a tree with the names, classes and parameters that the model
// has in Python. Each runs its own forward; the forwards of modules inside go through these, with
// their hooks, wherever the code calls them in every forward (script_graph.h). Parameters that the
// code reads of other modules are borrowed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/exported/script/script_objects.h"
#include "core/exported/script/script_plan.h"
#include "core/nn/buffers.h"
#include "core/nn/computation.h"
#include "core/nn/module.h"
#include "core/nn/module_list.h"
#include "core/nn/parameter_reads.h"
#include "core/nn/second_run.h"

namespace fsdp2::exported {

// What an object of a script's module class holds, for the module that stands for it.
class ScriptSlots : public nn::TransientBuffers, public nn::Computation {
 public:
  explicit ScriptSlots(ScriptObject object) : object_(std::move(object)) {}

  bool is_transient(const std::string& name) const override { return transient_.count(name) == 1; }
  nn::ComputationLines computation_lines() const override;

 protected:
  const ScriptObject& object() const { return object_; }
  // Gives `holder` the object's parameters and buffers, and its other tensors as transient buffers.
  // Error: kCorruptData for a name that cannot be one.
  void register_in(torch::nn::Module& holder, const std::string& title);
  // The flag of the script's own code; modules that have none are always in training mode.
  bool is_in_training() const;
  void set_training(bool on);

 private:
  const ScriptObject object_;
  std::unordered_set<std::string> transient_;
};

// A module that nobody calls: a list, or one whose code is part of another's.
class ScriptedList final : public nn::ModuleList, public ScriptSlots {
 public:
  ScriptedList(ScriptObject object, const std::string& title) : ScriptSlots(std::move(object)) {
    register_in(*this, title);
  }

  void train(bool on) override;
  bool is_training() const noexcept override { return is_in_training(); }
};

class ScriptedModule final : public nn::Module,
                             public nn::SecondRun,
                             public nn::ParameterBorrower,
                             public nn::UntrackedReads,
                             public ScriptSlots {
 public:
  // title: file and path.
  ScriptedModule(ScriptObject object, ScriptPlan plan, std::string title);

  void train(bool on) override;
  bool is_training() const noexcept override { return is_in_training(); }

  nn::InputCount input_count() const override;
  void check_inputs(const nn::Values& inputs) const override;
  // The classes of the modules in lists, those in a Sequential included.
  std::vector<std::string> no_split_kinds() const override;
  nn::ComputationLines computation_lines() const override;
  void check_may_run_again() const override;
  std::vector<at::Tensor> borrowed_parameters() const override;
  // Whether this module or one that it calls does.
  bool draws_random_numbers() const;

  // called: by the paths that the plan's steps call. change_in_place: whether any of the script's
  // modules does, so that what these give must bear it (script_views.h).
  void set_called(std::map<std::string, std::weak_ptr<ScriptedModule>> called,
                  bool change_in_place) {
    called_ = std::move(called);
    outputs_may_change_ = change_in_place;
  }
  const ScriptPlan& plan() const { return plan_; }

 protected:
  c10::IValue forward(nn::Values inputs) override;

 private:
  void check_keeps_attributes(const char* advice) const;
  c10::IValue run_call(const ScriptStep& step, nn::Values inputs) const;
  // Runs the code of the step of that number.
  void run_code(size_t number, torch::jit::Stack& stack) const;

  const ScriptPlan plan_;
  const std::string title_;
  std::vector<std::vector<at::Tensor>> parameters_read_;  // by step
  std::map<std::string, std::weak_ptr<ScriptedModule>> called_;
  bool outputs_may_change_ = false;
};

// The tree of the object and what is in it. title: of the file. Errors: kCorruptData, kUnsupported.
std::shared_ptr<ScriptedModule> make_scripted_tree(const ScriptObject& object,
                                                   const std::string& title);

}  // namespace fsdp2::exported
