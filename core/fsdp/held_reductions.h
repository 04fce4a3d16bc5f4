// Gradients of some micro batches that stay unreduced.
#pragma once

#include <utility>
#include <vector>

#include "core/fsdp/group/group_settings.h"
#include "core/fsdp/unit.h"

namespace fsdp2::fsdp {

// Leaves gradients unreduced while it lives; what the caller has set comes back with release() or
// at the end.
class HeldReductions {
 public:
  explicit HeldReductions(Unit& root) {
    for (const auto& unit : root.units()) {
      if (unit->group() != nullptr) {
        GroupSettings& settings = unit->group()->settings();
        held_.emplace_back(&settings, settings.requires_gradient_sync);
        settings.requires_gradient_sync = false;
      }
    }
  }
  ~HeldReductions() { release(); }
  HeldReductions(const HeldReductions&) = delete;
  HeldReductions& operator=(const HeldReductions&) = delete;

  void release() {
    for (const auto& [settings, flag] : held_) {
      settings->requires_gradient_sync = flag;
    }
    held_.clear();
  }

 private:
  std::vector<std::pair<GroupSettings*, bool>> held_;
};

}  // namespace fsdp2::fsdp
