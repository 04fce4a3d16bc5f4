// The averaged reference: an unsharded copy of a sharded module that is trained on every rank's
// inputs with the gradients averaged over the ranks. Each rank computes all of it on a copy of its
// own, so the reference communicates nothing.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/nn/module.h"

namespace fsdp2::checklist {

// |a - b| <= absolute + relative * |b|.
struct Tolerance {
  double absolute = 0.0;
  double relative = 0.0;
};
inline constexpr Tolerance kT32{1e-5, 1.3e-6};
inline constexpr Tolerance kT64{1e-7, 1e-7};
inline constexpr Tolerance kT16b{1e-5, 1.6e-2};
inline constexpr Tolerance kT16h{1e-5, 1e-3};
inline constexpr Tolerance kOrder{1e-5, 1e-4};  // where only the order of reduction differs
inline constexpr Tolerance kExact{0.0, 0.0};    // bit by bit

// Same shape and values within the tolerance; compared in fp64. `what` goes into the message.
// Returns whether they are.
bool expect_close(const at::Tensor& actual, const at::Tensor& expected, Tolerance tolerance,
                  const std::string& what);
bool expect_close(double actual, double expected, Tolerance tolerance, const std::string& what);

// PARITY: the same names, every shard of parameter and gradient equals the slice of the
// reference, gradients absent in one exactly when absent in the other. Reports the first difference
// and returns whether there is none.
bool expect_parity(fsdp::Unit& root, const nn::Module& reference, Tolerance tolerance,
                   const std::string& what);

// This rank's slice of a tensor of the parameter's full shape.
at::Tensor slice_of(const fsdp::ShardedParam& param, const at::Tensor& full);
// The parameter of that name (any of its names); fails if there is none.
fsdp::ShardedParam& find_param(fsdp::Unit& root, const std::string& name);
at::Tensor find_parameter(const nn::Module& module, const std::string& name);

// torch.optim's rules with default options, written out over leaves, sharded or not.
enum class Rule { kSgd, kAdam, kAdamW };

class PlainOptimizer {
 public:
  PlainOptimizer(std::vector<at::Tensor> leaves, Rule rule, double lr);
  void step();  // of every leaf that has a gradient
  void zero_grad();
  struct State {
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
    int64_t step = 0;
  };
  const std::vector<State>& state() const { return state_; }

 private:
  std::vector<at::Tensor> leaves_;
  Rule rule_;
  double lr_;
  std::vector<State> state_;
};

// What an optimizer of the sharded module, of an unsharded one, updates.
std::vector<at::Tensor> trainable_shards(fsdp::Unit& root);
std::vector<at::Tensor> trainable_parameters(const nn::Module& module);

// The loss of one rank's input. The same function serves the sharded module and the reference.
using Loss = std::function<at::Tensor(nn::Module& module, int rank)>;

// Adds every rank's gradient, divided by the number of ranks, to the reference's. Returns the
// losses by rank.
std::vector<double> averaged_backward(nn::Module& reference, int world, const Loss& loss);

// A sharded module and its reference. `world`: the number of ranks that have inputs of their own.
struct Pair {
  fsdp::Unit& root;
  nn::Module& sharded;
  nn::Module& reference;
  int rank;
  int world;
};

struct Training {
  int steps = 10;
  Rule rule = Rule::kAdam;
  double lr = 1e-2;
  Tolerance losses = kT32;
  Tolerance values = kT32;                        // of parameters and gradients
  int microbatches = 1;                           // backwards before each step of the optimizer
  bool fills_with_zero = false;                   // gradients, rather than to drop them
  std::function<void(int microbatch)> before;     // sets what the sharded module is to do
  std::function<void()> after_reference = [] {};  // may change the reference's gradients
};

// `batch` counts microbatches through all steps.
using StepLoss = std::function<at::Tensor(nn::Module& module, int batch, int rank)>;

// Trains both side by side and expects, up to the first difference, the same loss on this rank at
// every microbatch and PARITY before and after every step of the optimizer.
void expect_same_training(const Pair& pair, const Training& training, const StepLoss& loss);

}  // namespace fsdp2::checklist
