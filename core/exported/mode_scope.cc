#include "core/exported/mode_scope.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

namespace fsdp2::exported {

ModeScope::ModeScope(c10::DeviceType device)
    : device_(device),
      grad_(at::GradMode::is_enabled()),
      autocast_(at::autocast::is_autocast_enabled(device)),
      autocast_dtype_(at::autocast::get_autocast_dtype(device)) {}

void ModeScope::enter(const Mode& mode) {
  if (mode == now_) {
    return;
  }
  at::GradMode::set_enabled(mode.grad.value_or(grad_));
  if (!(mode.autocast == now_.autocast)) {
    const Mode::Autocast callers = {autocast_, autocast_dtype_};
    const Mode::Autocast autocast = mode.autocast.value_or(callers);
    at::autocast::set_autocast_enabled(device_, autocast.enabled);
    at::autocast::set_autocast_dtype(device_, autocast.dtype.value_or(autocast_dtype_));
    at::autocast::clear_cache();  // weights that were cast in the mode before
  }
  now_ = mode;
}

}  // namespace fsdp2::exported
