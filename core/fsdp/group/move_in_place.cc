#include "core/fsdp/group/move_in_place.h"

#include "core/nn/meta_tensor.h"
#include "core/nn/module.h"

namespace fsdp2::fsdp {

void move_in_place(const at::Tensor& tensor, at::Device device) {
  if (tensor.device() == device) {
    return;
  }
  if (const at::Tensor& grad = tensor.grad(); grad.defined()) {
    move_in_place(grad, device);
  }
  if (device.is_meta()) {
    nn::turn_into_meta(tensor);
    return;
  }
  const bool deferred = nn::has_no_memory(tensor);
  const at::Tensor moved =
      deferred ? nn::deferred_parameter(tensor.sizes(), tensor.scalar_type(), device)
               : tensor.detach().to(device);
  tensor.set_data(moved.detach());
}

}  // namespace fsdp2::fsdp
