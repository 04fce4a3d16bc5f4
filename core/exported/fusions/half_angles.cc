#include "core/exported/fusions/half_angles.h"

#include <algorithm>
#include <utility>

namespace fsdp2::exported {

namespace {

at::Tensor first_half(const at::Tensor& angles) {
  const at::Tensor rows = angles.squeeze(1).narrow(-1, 0, angles.size(3) / 2).contiguous();
  return rows.size(0) == 1 ? rows.squeeze(0) : rows;
}

}  // namespace

// The weak reference keeps the address of the storage from being that of another one.
bool HalfAngles::Entry::is_of(const at::Tensor& angles) const {
  return storage._unsafe_get_target() == angles.storage().unsafeGetStorageImpl() &&
         offset == angles.storage_offset() && angles.sizes() == sizes &&
         angles.strides() == strides && version == angles._version();
}

at::Tensor HalfAngles::of(const at::Tensor& angles) {
  if (angles.is_inference()) {  // counts no changes
    return first_half(angles);
  }
  for (const Entry& entry : entries_) {
    if (entry.is_of(angles)) {
      if (auto half = entry.half.lock(); half.defined()) {
        return at::Tensor(std::move(half));
      }
    }
  }
  entries_.erase(std::remove_if(entries_.begin(), entries_.end(),
                                [](const Entry& entry) { return entry.half.expired(); }),
                 entries_.end());
  at::Tensor half = first_half(angles);
  entries_.push_back({angles.storage().getWeakStorageImpl(), angles.storage_offset(),
                      angles.sizes().vec(), angles.strides().vec(), angles._version(),
                      WeakTensor(half.getIntrusivePtr())});
  return half;
}

}  // namespace fsdp2::exported
