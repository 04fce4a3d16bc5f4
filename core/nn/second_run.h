// What a module has that may not be able to run a second time on the same inputs, as activation
// checkpointing makes it do in backward. Modules without this can.
#pragma once

namespace fsdp2::nn {

class SecondRun {
 public:
  virtual ~SecondRun() = default;

  // Throws kUnsupported if a second forward would not be as the first: it changes its inputs, or
  // what it keeps, in place.
  virtual void check_may_run_again() const = 0;
};

}  // namespace fsdp2::nn
