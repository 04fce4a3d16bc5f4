#include "core/fsdp/group/kept_buffers.h"

#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/accumulate.h>

#include <utility>

#include "core/base/error.h"
#include "core/nn/module.h"

namespace fsdp2::fsdp {

void KeptBuffers::allocate(const at::Tensor& tensor, int64_t bytes) {
  const auto kept = kept_.find({tensor.device().index(), bytes});
  if (kept != kept_.end() && !kept->second.empty()) {
    give(tensor, std::move(kept->second.back()), bytes);
    kept->second.pop_back();
    bytes_ -= bytes;
    return;
  }
  if (source_ && bytes > 0) {
    give(tensor, source_(bytes), bytes);
  } else {
    nn::resize_storage(tensor, bytes);
  }
  ++taken_;
}

void KeptBuffers::give(const at::Tensor& tensor, c10::DataPtr memory, int64_t bytes) {
  FSDP2_CHECK(memory.device().type() == tensor.device().type(), Code::kInternal,
              "memory of {} for a tensor on {}", memory.device().str(), tensor.device().str());
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(static_cast<size_t>(bytes));
}

void KeptBuffers::free(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const auto bytes = static_cast<int64_t>(storage->nbytes());
  if (!keeps_ || bytes == 0) {
    nn::resize_storage(tensor, 0);
    return;
  }
  std::vector<c10::DataPtr>& kept = kept_[{tensor.device().index(), bytes}];
  kept.push_back(storage->set_data_ptr(c10::DataPtr(nullptr, tensor.device())));
  storage->set_nbytes(0);
  bytes_ += bytes;
}

at::Tensor KeptBuffers::empty(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const int64_t bytes =
      c10::multiply_integers(sizes) * static_cast<int64_t>(options.dtype().itemsize());
  const at::TensorOptions own_options = at::device(options.device()).dtype(options.dtype());
  if ((!keeps_ && !source_) || bytes == 0) {
    return at::empty(sizes, own_options);
  }
  at::Tensor buffer = at::empty({0}, own_options);
  allocate(buffer, bytes);
  buffer.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return buffer;
}

void KeptBuffers::drop(at::Tensor& buffer) {
  if (keeps_ && buffer.defined()) {
    free(buffer);
  }
  buffer = at::Tensor();
}

void KeptBuffers::release() {
  kept_.clear();
  bytes_ = 0;
}

}  // namespace fsdp2::fsdp
