// What a module has that draws random numbers from a generator of its own, rather than from
// LibTorch's default one, which all threads of the process share.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>

#include "core/nn/module.h"

namespace fsdp2::nn {

class OwnGenerator {
 public:
  virtual ~OwnGenerator() = default;

  // On the CPU; none where forward draws nothing. Ranks whose generators have the same state draw
  // the same numbers.
  virtual std::optional<at::Generator> own_generator() const = 0;
};

// None for a module that is no OwnGenerator.
std::optional<at::Generator> own_generator_of(const Module& module);

}  // namespace fsdp2::nn
