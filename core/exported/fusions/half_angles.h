// The angles that rotations keep for backward.
//
// transformers' programs have a table of cos and one of sin whose halves are equal, and views of
// them for each rotation. Ours takes one half: the layers' rotations share it, instead of keeping
// one each.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <vector>

namespace fsdp2::exported {

// For one thread at a time. Keeps no memory of tensors itself.
class HalfAngles {
 public:
  // The first half of the angles [1 or B,1,S,E]: [S,E/2], or [B,S,E/2]. It is the tensor that was
  // returned for the same elements before, if anybody still has that and they have not changed.
  at::Tensor of(const at::Tensor& angles);

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  struct Entry {
    bool is_of(const at::Tensor& angles) const;

    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int64_t offset;
    std::vector<int64_t> sizes, strides;
    int64_t version;
    WeakTensor half;
  };

  std::vector<Entry> entries_;
};

}  // namespace fsdp2::exported
