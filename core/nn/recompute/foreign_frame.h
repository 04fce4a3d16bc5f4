// Marks a stretch of this thread's stack that is not ours, such as a C function of the caller that
// a module calls. A recomputation that stops early does so by an exception, and none may pass
// through such a frame: while it is on the stack, the recomputations around it run on, and stop
// after it.
#pragma once

namespace fsdp2::nn {

class ForeignFrame {
 public:
  ForeignFrame();
  ~ForeignFrame();
  ForeignFrame(const ForeignFrame&) = delete;
  ForeignFrame& operator=(const ForeignFrame&) = delete;

  // How many are on this thread's stack.
  static int depth();
};

}  // namespace fsdp2::nn
