// AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019), as
// torch.optim.AdamW, and Adam, as torch.optim.Adam, which it is with another decay.
//
// Note [Moments in bf16]
// Parameters in fp32 may have their moments in bf16, which takes half the memory. The arithmetic of
// an update stays fp32: it widens the moments, goes on with what it has computed, and only then
// rounds what it stores. Each moment is rounded in the way that its decay asks for. Half a unit in
// the last place of bf16 is 1/512 to 1/256 of a number:
//
//   exp_avg     changes by 1 - beta1 = 1/10 of its distance to the gradient, beside which half a
//               unit is little: rounding to nearest leaves it at most 2 to 4 % off, when gradients
//               are constant, and adds no noise.
//   exp_avg_sq  changes by 1 - beta2 = 1/1000. Rounded to nearest it would never fall, and not rise
//               before a square is 3 to 5 times as large: learning rates would stay as small as the
//               largest gradient made them. So it is rounded by chance, up or down, such that the
//               mean of many roundings is exact, as LLM.Q does. It then scatters by some 5 % around
//               what fp32 has, and steps by half of that.
//
// The chance of an element follows from its parameter's name, its place in the whole parameter and
// the step, from no generator. Thus any number of ranks and threads, and a run that was resumed,
// gets the same bits. Where the gradient is NaN or infinite, so are the moments, as in fp32.
// Checkpoints have the moments in their dtype. A run takes the other one as well: fp32 is rounded
// to nearest, once, and bf16 is widened.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool decoupled_weight_decay = true;  // false: Adam, where the decay is added to the gradient
  // Dtype of the moments, if not each parameter's own: kBFloat16 or kFloat, of parameters in fp32
  // alone. One optimizer has one; for a group, unset is the optimizer's.
  std::optional<c10::ScalarType> state_dtype = std::nullopt;
};

// kInvalidArgument for what the algorithm cannot do.
void check(const AdamWOptions& options);

// Error: kUnsupported for a state_dtype where a parameter is not in fp32.
std::unique_ptr<Optimizer> make_adamw(std::shared_ptr<fsdp::Unit> root,
                                      const AdamWOptions& options);

// Moves parameters of an AdamW into a new group; see Note [Groups] in optimizer.h. Error, beside
// those of groups: kInvalidArgument for another state_dtype than the optimizer's.
void add_group(Optimizer& optimizer, const std::vector<std::string>& names,
               const AdamWOptions& options);

}  // namespace fsdp2::train
