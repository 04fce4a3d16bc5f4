// Parameter groups by rule: what a rule is for moves out of its group into one that differs in
// nothing else, or changes its group where that is all of it.
#pragma once

#include <string>

#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

struct ParameterKinds {
  bool norms = false;   // of modules whose class has "Norm" in its name
  bool biases = false;  // whose name ends in "bias"
};

// Sets the weight decay of these parameters to 0.
void exempt_from_decay(Optimizer& optimizer, const ParameterKinds& kinds);

// Multiplies the learning rate of the parameters that a pattern of the shell (fnmatch: * ? [0-9])
// matches by a factor, now and later. Any of a parameter's names may match. Errors, with nothing
// changed: kNotFound (no parameter that trains matches), kInvalidArgument (a factor that is not
// finite and >= 0; all of the first group, whose rate is the optimizer's).
void scale_lr(Optimizer& optimizer, const std::string& pattern, double factor);

}  // namespace fsdp2::train
