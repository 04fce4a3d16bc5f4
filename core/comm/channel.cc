#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/comm/comm.h"
#include "core/device/stream_backend.h"

namespace fsdp2 {

Channel::Channel(Connect connect, std::shared_ptr<FailureNotice> failure,
                 std::shared_ptr<CollectiveCheck> check)
    : connect_(std::move(connect)), failure_(std::move(failure)), check_(std::move(check)) {}

Channel::~Channel() {
  // A call that will never complete would otherwise hold up the backend's own destructor.
  if (backend_ && unfinished_ > 0 && failure_->failed()) {
    backend_->abort();
  }
}

c10d::Backend& Channel::backend(FailureNotice& failure) {
  if (!backend_) {
    backend_ = connect_(failure);
    if (auto* streams = dynamic_cast<StreamBackend*>(backend_.get())) {
      streams->give_up_when([own = failure_] { return own->text(); });
    }
  }
  return *backend_;
}

std::exception_ptr Channel::stream_error() const {
  const auto* streams = dynamic_cast<const StreamBackend*>(backend_.get());
  return streams != nullptr ? streams->error() : nullptr;
}

// ---- what a group has of its transport beside collectives

bool Comm::has_memory() {
  return channel_ && channel_->backend(*failure_).supportsTensorAlloc(device().index());
}

// The tensor around it is of no use: memory is given to storages that are there already.
c10::DataPtr Comm::allocate(int64_t bytes) {
  constexpr const char* kName = "allocate";
  check_healthy(kName);
  at::Tensor tensor;
  try {
    tensor =
        channel_->backend(*failure_).allocateTensor(bytes, at::device(device()).dtype(at::kByte));
  } catch (const c10::OutOfMemoryError&) {
    throw;  // which a rank tells the others of by itself, as of the allocator's
  } catch (...) {
    fail_all(kName, Code::kComm, current_exception_text());
  }
  return tensor.storage().unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, device()));
}

void Comm::release_memory() {
  if (channel_ && channel_->connected()) {
    if (auto* streams = dynamic_cast<StreamBackend*>(&channel_->backend(*failure_))) {
      streams->release_memory();
    }
  }
}

std::string Comm::transport_name() {
  return channel_ ? channel_->backend(*failure_).getBackendName() : "none";
}

}  // namespace fsdp2
