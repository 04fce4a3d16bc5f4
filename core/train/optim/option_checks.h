// Checks of optimizers' options: kInvalidArgument with the option's name.
#pragma once

#include <cmath>

#include "core/base/error.h"

namespace fsdp2::train {

inline void check_rate(const char* name, double value) {
  FSDP2_CHECK(std::isfinite(value) && value >= 0.0, Code::kInvalidArgument,
              "{}: expected a finite number >= 0, got {}", name, value);
}

inline void check_fraction(const char* name, double value) {
  FSDP2_CHECK(value >= 0.0 && value < 1.0, Code::kInvalidArgument,
              "{}: expected a number in [0, 1), got {}", name, value);
}

}  // namespace fsdp2::train
