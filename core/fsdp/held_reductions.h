// Gradients of some micro batches that stay unreduced.
#pragma once

#include <utility>
#include <vector>

#include "core/fsdp/group/group_settings.h"

namespace fsdp2::nn {
class Module;
}

namespace fsdp2::fsdp {

class Unit;

// Which units reduce their gradients at the last micro batch of a step alone. It saves traffic, and
// costs memory for whole gradients.
enum class ReducedLast {
  kNone,
  kVocabulary,  // units with a table over the vocabulary: much traffic, little computation
  kAll,
};

// Whether below the root there is an embedding table or a head ("lm_head").
bool has_vocabulary(const nn::Module& root);

// Leaves gradients unreduced while it lives; what the caller has set comes back with release() or
// at the end.
class HeldReductions {
 public:
  HeldReductions(Unit& root, ReducedLast which);
  ~HeldReductions() { release(); }
  HeldReductions(const HeldReductions&) = delete;
  HeldReductions& operator=(const HeldReductions&) = delete;

  void release();

 private:
  std::vector<std::pair<GroupSettings*, bool>> held_;
};

}  // namespace fsdp2::fsdp
