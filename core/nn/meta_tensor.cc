#include "core/nn/meta_tensor.h"

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

namespace fsdp2::nn {

void turn_into_meta(const at::Tensor& tensor) {
  c10::Allocator* allocator = c10::GetAllocator(at::kMeta);
  const size_t bytes = static_cast<size_t>(tensor.numel()) * tensor.element_size();
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(c10::Storage(c10::Storage::use_byte_size_t(), bytes,
                                            allocator->allocate(bytes), allocator,
                                            /*resizable=*/true));
  impl->_change_backend_component_keys(at::kMeta);
}

}  // namespace fsdp2::nn
