#include "core/fsdp/group/buffer_in_flight.h"

#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace fsdp2::fsdp {
namespace {

constexpr at::DeviceType kDevice = at::DeviceType::PrivateUse1;
constexpr c10::StreamId kMemory = 1;   // the stream that memory is allocated on
constexpr c10::StreamId kCompute = 2;  // the stream that uses it last

c10::StreamId current = kMemory;
std::vector<std::string> told;  // what the device was told, in order

// A device that runs nothing: it notes what its streams and its memory are told.
struct NotingDevice final : c10::impl::DeviceGuardImplInterface {
  at::DeviceType type() const override { return kDevice; }
  at::Device exchangeDevice(at::Device device) const override { return device; }
  at::Device getDevice() const override { return {kDevice, 0}; }
  void setDevice(at::Device /*device*/) const override {}
  void uncheckedSetDevice(at::Device /*device*/) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(at::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*index*/,
              c10::EventFlag /*flag*/) const override {
    static std::array<char, 2> handle;
    *event = handle.data();
    told.push_back("record on " + std::to_string(stream.id()));
  }
  void block(void* /*event*/, const c10::Stream& stream) const override {
    told.push_back("wait on " + std::to_string(stream.id()));
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, NotingDevice)

// Memory of the device, allocated on kMemory; kCompute is current afterwards.
at::Tensor device_memory() {
  static char memory;
  c10::DataPtr data(
      &memory, &memory, [](void*) { told.emplace_back("free"); }, at::Device(kDevice, 0));
  c10::Storage storage(c10::Storage::use_byte_size_t(), 1, std::move(data), nullptr,
                       /*resizable=*/false);
  return at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      caffe2::TypeMeta::Make<uint8_t>());
}

BufferInFlight buffer_used_by_compute() {
  told.clear();
  current = kMemory;
  BufferInFlight buffer(device_memory());
  current = kCompute;
  return buffer;
}

TEST(BufferInFlight, TheMemorysStreamWaitsForTheLastUseBeforeTheMemoryGoes) {
  BufferInFlight buffer = buffer_used_by_compute();
  buffer.mark_used();
  buffer.release();
  EXPECT_EQ(told, (std::vector<std::string>{"record on 2", "wait on 1", "free"}));
  buffer.release();
  EXPECT_EQ(told.size(), 3);
}

TEST(BufferInFlight, ItsEndAndAnotherBufferInItsPlaceReleaseIt) {
  {
    BufferInFlight buffer = buffer_used_by_compute();
    buffer.mark_used();
    BufferInFlight moved = std::move(buffer);
    EXPECT_EQ(told, std::vector<std::string>{"record on 2"});
  }
  EXPECT_EQ(told, (std::vector<std::string>{"record on 2", "wait on 1", "free"}));
  BufferInFlight buffer = buffer_used_by_compute();
  buffer.mark_used();
  buffer = BufferInFlight();
  EXPECT_EQ(told, (std::vector<std::string>{"record on 2", "wait on 1", "free"}));
}

TEST(BufferInFlight, MemoryThatNoOtherStreamUsedGoesAtOnce) {
  BufferInFlight buffer = buffer_used_by_compute();
  buffer.release();
  EXPECT_EQ(told, std::vector<std::string>{"free"});
}

TEST(BufferInFlight, TheHostHasNoEvents) {
  told.clear();
  const at::Tensor memory = at::empty({4}, at::device(at::kCPU));
  BufferInFlight buffer(memory);
  EXPECT_TRUE(buffer.tensor().is_same(memory));
  buffer.mark_used();
  buffer.release();
  EXPECT_FALSE(buffer.tensor().defined());
  EXPECT_EQ(memory.use_count(), 1);
  EXPECT_TRUE(told.empty());
}

}  // namespace
}  // namespace fsdp2::fsdp
