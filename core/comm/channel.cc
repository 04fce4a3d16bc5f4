#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <utility>

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

}  // namespace fsdp2
