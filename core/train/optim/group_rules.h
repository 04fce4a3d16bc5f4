// Parameter groups by rule: what a rule is for moves out of its group into one that differs in
// nothing else, or changes its group where that is all of it.
#pragma once

#include <string>
#include <vector>

#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

struct ParameterKinds {
  bool norms = false;   // of modules whose class has "Norm" in its name
  bool biases = false;  // whose name ends in "bias"
};

// Sets the weight decay of these parameters to 0.
void exempt_from_decay(Optimizer& optimizer, const ParameterKinds& kinds);

// The same for the parameters that one of the patterns matches, as below.
void exempt_from_decay_by_name(Optimizer& optimizer, const std::vector<std::string>& patterns);
// The same for all parameters at and below modules of these classes (Module::is_of_class). Error,
// with nothing changed: kNotFound (a class without a parameter that trains).
void exempt_from_decay_by_class(Optimizer& optimizer, const std::vector<std::string>& classes);

// Multiplies the learning rate of the parameters that one of these patterns of the shell (fnmatch:
// * ? [0-9]) matches by a factor, once, now and later. Any of a parameter's names may match.
// Errors, with nothing changed: kNotFound (a pattern that matches no parameter that trains),
// kInvalidArgument (no patterns; a factor that is not finite and >= 0; all of the first group,
// whose rate is the optimizer's).
void scale_lr(Optimizer& optimizer, const std::vector<std::string>& patterns, double factor);

}  // namespace fsdp2::train
