// Objects that serve one thread at a time, and what a second one is told.
#pragma once

#include <atomic>

#include "core/base/error.h"

namespace fsdp2::capi {

// A flag shared by all handles of one tree (module, shard, its optimizers and steps), of one world
// (a mesh and its sub-meshes), or of one loader.
class Busy {
 public:
  explicit Busy(const char* what) : what_(what) {}

  // kBusy if a call is inside. `function` is a literal.
  void enter(const char* function) {
    const char* inside = nullptr;
    FSDP2_CHECK(inside_.compare_exchange_strong(inside, function), Code::kBusy,
                "the {} serves one thread at a time: another is inside {}", what_, inside);
  }
  void leave() { inside_.store(nullptr); }

 private:
  const char* what_;
  std::atomic<const char*> inside_{nullptr};
};

}  // namespace fsdp2::capi
