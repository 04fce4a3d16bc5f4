// LibTorch's modes of a thread, which belong to whoever uses LibTorch there beside the library.
#pragma once

#include <c10/core/AutogradState.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace fsdp2::capi {

// While it lives, the modes of this thread are as the library needs them: gradients are recorded,
// backward stays on this thread, nothing is cast.
//
// It does what c10::InferenceMode(false) and a guard that excludes autocast do, but writes the keys
// only if they differ, which is rare: every call has one, and those two would be a tenth of a short
// call.
class LibraryModes {
 public:
  LibraryModes()
      : autograd_(c10::AutogradState::get_tls_state()),
        autograd_before_(autograd_),
        keys_before_(c10::impl::tls_local_dispatch_key_set()) {
    autograd_ = {/*grad_mode=*/true, /*inference_mode=*/false, /*fw_grad_mode=*/true,
                 /*multithreading_enabled=*/false};
    set_keys(
        keys_before_.included_.add(c10::DispatchKey::ADInplaceOrView),
        (keys_before_.excluded_ - c10::autograd_dispatch_keyset) | c10::autocast_dispatch_keyset);
  }
  ~LibraryModes() {
    autograd_ = autograd_before_;
    set_keys(keys_before_.included_, keys_before_.excluded_);
  }
  LibraryModes(const LibraryModes&) = delete;
  LibraryModes& operator=(const LibraryModes&) = delete;

 private:
  static void set_keys(c10::DispatchKeySet included, c10::DispatchKeySet excluded) {
    c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    if (keys.included_ == included && keys.excluded_ == excluded) {
      return;
    }
    keys.included_ = included;
    keys.excluded_ = excluded;
    c10::impl::_force_tls_local_dispatch_key_set(keys);
  }

  c10::AutogradState& autograd_;  // this thread's
  const c10::AutogradState autograd_before_;
  const c10::impl::LocalDispatchKeySet keys_before_;
};

}  // namespace fsdp2::capi
