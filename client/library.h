// libfsdp2's C ABI in C++: handles that destroy themselves, status codes as exceptions, and texts
// and info structs as return values.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "fsdp2/fsdp2.h"

namespace fsdp2::client {

// A run that cannot go on; the message is one line.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& message, fsdp2_status status = FSDP2_OK)
      : std::runtime_error(message), status_(status) {}

  // The status of the library call that failed; FSDP2_OK if something else failed.
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
  // Where a call is to put a new handle.
  Handle* out() {
    reset();
    return &handle_;
  }
  // Gives the handle away.
  Handle release() { return std::exchange(handle_, Handle{0}); }
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
using Tokenizer = Owned<fsdp2_tokenizer, fsdp2_tokenizer_destroy>;

// The text that call(arguments..., buf, cap, needed) returns.
template <typename Call, typename... Arguments>
std::string text_of(Call call, Arguments... arguments) {
  // Most texts fit at once: some calls read files for them, and warn of what they find.
  std::string text(65536, '\0');
  while (true) {
    size_t needed = 0;
    const fsdp2_status status = call(arguments..., text.data(), text.size(), &needed);
    if (status == FSDP2_E_BUFFER_TOO_SMALL && needed > text.size()) {
      text.resize(needed);
      continue;
    }
    check(status);
    text.resize(needed - 1);  // without its NUL
    return text;
  }
}

// The struct that call(arguments..., out) fills.
template <typename Info, typename Call, typename... Arguments>
Info info_of(Call call, Arguments... arguments) {
  Info info{};
  info.struct_size = sizeof(info);
  check(call(arguments..., &info));
  return info;
}

}  // namespace fsdp2::client
