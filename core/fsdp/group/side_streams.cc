#include "core/fsdp/group/side_streams.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "core/nn/meta_tensor.h"

namespace fsdp2::fsdp {

namespace {

// Ahead of computation, whose kernels would else keep a collective's few from starting.
constexpr int kHighPriority = -1;

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

// ---- StreamMark

void StreamMark::put(at::Device device) {
  if (nn::acts_as_host(device)) {
    return;
  }
  if (!event_) {
    event_.emplace(device.type());
  }
  event_->record(current_stream(device));
}

void StreamMark::make_wait(c10::Stream stream) const {
  if (event_) {
    event_->block(stream);
  }
}

void StreamMark::make_current_wait() const {
  if (event_) {
    make_wait(current_stream(event_->device()));
  }
}

void StreamMark::wait_on_host() const {
  if (event_) {
    event_->synchronize();
  }
}

// ---- SideStream

SideStream::SideStream(at::Device device) {
  if (!nn::acts_as_host(device)) {
    stream_ = c10::impl::VirtualGuardImpl(device.type()).getNewStream(device, kHighPriority);
  }
}

void SideStream::follow_current() const {
  if (stream_) {
    so_far_.put(stream_->device());
    so_far_.make_wait(*stream_);
  }
}

void SideStream::make_current_wait() const {
  if (stream_) {
    {
      const auto entered = enter();
      so_far_.put(stream_->device());
    }
    so_far_.make_current_wait();
  }
}

// ---- SideStreams

SideStreams::SideStreams(at::Device device) : gather(device), reduce(device), all_reduce(device) {}

void SideStreams::follow_current() const {
  gather.follow_current();
  reduce.follow_current();
  all_reduce.follow_current();
}

void SideStreams::make_current_wait() const noexcept {
  try {
    gather.make_current_wait();
    reduce.make_current_wait();
    all_reduce.make_current_wait();
  } catch (...) {  // a device that has failed runs nothing that could use the memory again
  }
}

}  // namespace fsdp2::fsdp
