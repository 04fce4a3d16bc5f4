// What a module has that computes what a file says: config.json, a program, a script. Ranks that
// train one model must compute the same of its parameters, and their names and shapes do not tell.
// Modules without this are code, which the ranks are expected to have alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace fsdp2::nn {

// Key and value. A key is there once, and has no '='; neither has a line break.
using ComputationLines = std::vector<std::pair<std::string, std::string>>;

class Computation {
 public:
  virtual ~Computation() = default;

  // Equal for two modules that compute the same, whatever their files are called and however these
  // say it. Values of parameters are left out, those of other tensors are there as checksums. What
  // modules inside say for themselves is left out, too.
  virtual ComputationLines computation_lines() const = 0;
};

// A tensor as a value of such a line: dtype, shape, and a checksum of its values.
std::string line_of(const at::Tensor& tensor);

}  // namespace fsdp2::nn
