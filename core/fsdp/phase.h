// The phases of a step as ranges in profiles, under the names that they have in PyTorch's traces:
// "FSDP::all_gather (model.layers.0)", and without a name for the root.
#pragma once

#include <ATen/record_function.h>

#include <string>

namespace fsdp2::fsdp {

// The phase lasts as long as this. While no profiler runs, no text is made.
class Phase {
 public:
  explicit Phase(const char* label) : range_(at::RecordScope::USER_SCOPE) {
    if (range_.isActive()) {
      range_.before(label);
    }
  }
  Phase(const char* label, const std::string& unit) : range_(at::RecordScope::USER_SCOPE) {
    if (range_.isActive()) {
      range_.before(unit.empty() ? std::string(label) : label + (" (" + unit + ")"));
    }
  }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  at::RecordFunction range_;
};

}  // namespace fsdp2::fsdp
