#include "core/fsdp/group/buffer_in_flight.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace fsdp2::fsdp {

namespace {

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

BufferInFlight::BufferInFlight(at::Tensor tensor) : tensor_(std::move(tensor)) {
  if (!tensor_.is_cpu()) {
    own_stream_ = current_stream(tensor_.device());
  }
}

BufferInFlight::~BufferInFlight() {
  try {
    release();
  } catch (
      ...) {  // of a stream that has failed, and so runs nothing that could use the memory again
  }
}

BufferInFlight::BufferInFlight(BufferInFlight&& other) noexcept
    : tensor_(std::exchange(other.tensor_, at::Tensor())),
      own_stream_(std::exchange(other.own_stream_, std::nullopt)),
      used_(std::exchange(other.used_, std::nullopt)) {}

BufferInFlight& BufferInFlight::operator=(BufferInFlight&& other) noexcept {
  BufferInFlight taken(std::move(other));
  std::swap(tensor_, taken.tensor_);
  std::swap(own_stream_, taken.own_stream_);
  std::swap(used_, taken.used_);
  return *this;  // what it held ends with `taken`
}

void BufferInFlight::mark_used() {
  if (own_stream_) {
    used_.emplace(own_stream_->device_type());
    used_->record(current_stream(own_stream_->device()));
  }
}

void BufferInFlight::release() {
  if (used_) {
    used_->block(*own_stream_);
    used_.reset();
  }
  own_stream_.reset();
  tensor_ = at::Tensor();
}

}  // namespace fsdp2::fsdp
