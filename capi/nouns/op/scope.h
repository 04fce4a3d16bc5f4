// Tensors of the caller that end together.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "capi/handle.h"
#include "include/fsdp2/base.h"

namespace fsdp2::capi {

class ScopeObject {
 public:
  ScopeObject() = default;
  ~ScopeObject();
  ScopeObject(const ScopeObject&) = delete;
  ScopeObject& operator=(const ScopeObject&) = delete;

  // All or, if there is no memory for it, none.
  void add(const std::vector<fsdp2_tensor>& tensors);
  // kNotFound, with nothing changed, for a tensor that is not in it.
  void keep(const std::vector<fsdp2_tensor>& tensors);

 private:
  std::mutex mutex_;
  std::unordered_set<uint64_t> tensors_;
};

inline std::shared_ptr<ScopeObject> pin(fsdp2_scope scope) {
  return std::static_pointer_cast<ScopeObject>(HandleTable::global().pin(scope.id, Kind::kScope));
}

}  // namespace fsdp2::capi
