// Runs a program's calls, for the modules of its tree.
//
// What is bound before the program runs is shared by all calls: parameters as the modules hold
// them, which sharding gathers and frees around each module's forward, buffers and constants.
//
// One thread at a time, as a module tree.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/exported/call_plan.h"
#include "core/exported/fusions/fusion.h"
#include "core/exported/mode_scope.h"
#include "core/exported/module_calls.h"
#include "core/exported/operators/operations.h"
#include "core/exported/program/program.h"
#include "core/exported/writes.h"
#include "core/nn/module.h"

namespace fsdp2::exported {

class Machine {
 public:
  // fuses: whether nodes may run as our own operators. Errors: those of resolve_operations and
  // check_writes.
  Machine(Program program, bool fuses);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const Program& program() const { return program_; }
  const std::vector<ModuleCall>& calls() const { return calls_; }
  bool fuses() const { return fuses_; }

  // Before the first run. Ties: one tensor for several values.
  void bind(const BoundTensor& to, const at::Tensor& tensor);
  at::Tensor bound(const BoundTensor& tensor) const {
    return bound_[static_cast<size_t>(tensor.value)];
  }
  // By call: whose it is. A call inside another one goes through its module's operator(), with
  // hooks, and with the call's number before its inputs.
  void set_modules(std::vector<std::weak_ptr<nn::Module>> modules) {
    modules_ = std::move(modules);
  }

  // Brings buffers and constants to where the parameters are.
  void move_to(at::Device device);

  // One output as it is; otherwise a tuple. Errors: kInvalidArgument for what an operator refuses,
  // and for an assertion that fails, naming the node; kWrongState for a parameter that is not
  // gathered.
  c10::IValue run(size_t call, nn::Values inputs) const;

  // The parameters that the call's own nodes read, those of calls inside left out; some twice.
  std::vector<at::Tensor> parameters_read(size_t call) const;
  // Whether any node draws from the default generators.
  bool draws_random_numbers() const;

  // Error: kUnsupported if a second run of the call would not be as the first.
  void check_may_run_again(size_t call) const;

 private:
  using Frame = std::vector<c10::IValue>;

  c10::IValue read(const ReadPlace& place, Frame& frame) const;
  void run_step(const Step& step, Frame& frame, ModeScope& mode) const;
  void run_operation(const Step& step, Frame& frame) const;
  void run_call(const Step& step, Frame& frame) const;
  // Whether it ran; if not, its nodes are to.
  bool run_fusion(const Step& step, Frame& frame) const;
  static void forget_last(const std::vector<ReadPlace>& places, Frame& frame);
  // Whether nothing but the modules' own nodes would run in their calls.
  bool are_bare(const std::vector<Step>& steps) const;
  const Node& last_node(const Fusion& fusion) const;
  void push_inputs(const Step& step, Frame& frame, std::vector<c10::IValue>& stack) const;
  void check_dtype(const Operation& operation, const at::Tensor& tensor) const;
  void store(const Step& step, std::vector<c10::IValue> results, Frame& frame) const;
  void check_gathered(const at::Tensor& parameter, ValueId value) const;

  const Program program_;
  const bool fuses_;
  const std::vector<Operation> operations_;
  const std::vector<ModuleCall> calls_;
  const std::vector<Fusion> fusions_;
  const std::vector<CallPlan> plans_;
  const std::vector<Write> writes_;
  const std::vector<const Write*> outside_writes_;  // by call
  std::vector<at::Tensor> bound_;                   // by value
  std::vector<bool> is_parameter_;                  // by value
  std::vector<std::weak_ptr<nn::Module>> modules_;  // by call
  at::Device device_ = at::kCPU;
};

}  // namespace fsdp2::exported
