// libfsdp2's C ABI for C++: handles that destroy themselves and status codes as exceptions.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "fsdp2/fsdp2.h"

namespace fsdp2::cli {

// A run that cannot go on; the message is one line.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& message, fsdp2_status status = FSDP2_OK)
      : std::runtime_error(message), status_(status) {}

  // Of the library's call that failed; FSDP2_OK: something else did.
  fsdp2_status status() const { return status_; }

 private:
  fsdp2_status status_;
};

inline void check(fsdp2_status status) {
  if (status != FSDP2_OK) {
    throw Failure(fsdp2_error_message(), status);
  }
}

template <typename Handle, fsdp2_status (*kDestroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  ~Owned() { reset(); }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, Handle{0})) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Owned& operator=(Owned&&) = delete;

  Handle get() const { return handle_; }
  bool is_null() const { return handle_.id == 0; }
  // For a call that gives a handle out.
  Handle* out() {
    reset();
    return &handle_;
  }
  void reset() {
    if (!is_null()) {
      kDestroy(std::exchange(handle_, Handle{0}));
    }
  }

 private:
  Handle handle_{0};
};

using Mesh = Owned<fsdp2_mesh, fsdp2_mesh_destroy>;
using Tensor = Owned<fsdp2_tensor, fsdp2_tensor_destroy>;
using Module = Owned<fsdp2_module, fsdp2_module_destroy>;
using Shard = Owned<fsdp2_shard, fsdp2_shard_destroy>;
using Optimizer = Owned<fsdp2_optimizer, fsdp2_optimizer_destroy>;
using Loader = Owned<fsdp2_loader, fsdp2_loader_destroy>;
using Step = Owned<fsdp2_step, fsdp2_step_destroy>;

// The text that a call gives as (buf, cap, needed).
template <typename Call>
std::string text_of(Call&& call) {
  size_t needed = 0;
  check(call(nullptr, 0, &needed));
  std::string text(needed, '\0');
  check(call(text.data(), text.size(), &needed));
  text.resize(needed - 1);  // without its NUL
  return text;
}

}  // namespace fsdp2::cli
