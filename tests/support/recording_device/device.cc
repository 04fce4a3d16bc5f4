#include "tests/support/recording_device/device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "core/device/device_graphs.h"
#include "tests/support/recording_device/graphs.h"

namespace fsdp2::recording {

namespace {

// As CUDA's: new streams are the pool's, in turn.
constexpr int kPooledStreams = 32;

struct DeviceState {
  Recorder recorder;
  std::mutex mutex;
  std::vector<int> pool;
  size_t next = 0;
  std::map<const void*, Bytes> in_use;
  std::function<void(const Bytes&)> watch;
  std::atomic<int64_t> events_made{0};

  void note_allocation(const Bytes& bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    in_use[bytes.data.get()] = bytes;
    if (watch) {
      watch(bytes);
    }
  }
  void note_free(const void* data) {
    const std::lock_guard<std::mutex> lock(mutex);
    in_use.erase(data);
  }
  int take_stream() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (pool.size() < kPooledStreams) {
      pool.push_back(recorder.take_stream());
    }
    return pool[next++ % kPooledStreams];
  }
};

DeviceState& state_of(c10::DeviceIndex device) {
  static auto* const devices = new std::array<DeviceState, kDevices>;  // until the process ends
  return devices->at(static_cast<size_t>(device));
}

struct Current {
  c10::DeviceIndex device = 0;
  std::array<int, kDevices> streams{};
};

Current& current() {
  thread_local Current instance;
  return instance;
}

c10::Stream stream_of(at::Device device, int stream) {
  return c10::Stream(c10::Stream::UNSAFE, device, stream);
}

at::Device with_index(at::Device device) {
  return {kType, device.has_index() ? device.index() : current().device};
}

// ---- memory

// The bytes live as long as someone uses them in reality, such as another rank in a collective.
struct Block {
  c10::DeviceIndex device;
  Memory* memory;
  std::shared_ptr<void> bytes;
};

void free_block(void* context) {
  auto* const block = static_cast<Block*>(context);
  recorder(block->device).free(block->memory);
  state_of(block->device).note_free(block->bytes.get());
  delete block;
}

class RecordedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const at::Device device(kType, current().device);
    if (bytes == 0) {
      return {nullptr, device};
    }
    Memory* const memory = recorder(device.index()).allocate(current_stream(device.index()), bytes);
    auto* const block = new Block{device.index(), memory, {std::malloc(bytes), std::free}};
    state_of(device.index()).note_allocation({block->bytes, bytes});
    return {block->bytes.get(), block, free_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

// ---- streams and events

struct Event {
  c10::DeviceIndex device;
  int stream;
  Clock mark;
  int64_t recording;  // that it is in
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  at::DeviceType type() const override { return kType; }
  at::Device exchangeDevice(at::Device device) const override {
    return {kType, std::exchange(current().device, device.index())};
  }
  at::Device getDevice() const override { return {kType, current().device}; }
  void setDevice(at::Device device) const override { current().device = device.index(); }
  void uncheckedSetDevice(at::Device device) const noexcept override {
    current().device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(at::Device device) const override {
    const at::Device known = with_index(device);
    return stream_of(known, current_stream(known.index()));
  }
  c10::Stream getDefaultStream(at::Device device) const override {
    return stream_of(with_index(device), Recorder::kComputeStream);
  }
  c10::Stream getStreamFromGlobalPool(at::Device device, bool /*high*/) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(at::Device device, int /*priority*/) const override {
    const at::Device known = with_index(device);
    return stream_of(known, state_of(known.index()).take_stream());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    int& slot = current().streams.at(static_cast<size_t>(stream.device_index()));
    return stream_of(stream.device(), std::exchange(slot, static_cast<int>(stream.id())));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*index*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) {
      *event = new Event;
      ++state_of(stream.device_index()).events_made;
    }
    const int id = static_cast<int>(stream.id());
    Recorder& of_device = recorder(stream.device_index());
    *static_cast<Event*>(*event) = {stream.device_index(), id, of_device.mark(id),
                                    of_device.recording_of(id)};
  }
  void block(void* event, const c10::Stream& stream) const override {
    const auto* const waited_for = static_cast<Event*>(event);
    recorder(stream.device_index())
        .wait(static_cast<int>(stream.id()), waited_for->mark,
              "for stream " + std::to_string(waited_for->stream), waited_for->recording);
  }
  bool queryEvent(void* /*event*/) const override { return true; }
  void destroyEvent(void* event, c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Event*>(event);
  }

  bool queryStream(const c10::Stream& /*stream*/) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override {
    Recorder& of_device = recorder(stream.device_index());
    of_device.wait_on_host(of_device.mark(static_cast<int>(stream.id())), "a stream's end");
  }
  void synchronizeEvent(void* event) const override {
    const auto* const waited_for = static_cast<Event*>(event);
    recorder(waited_for->device).wait_on_host(waited_for->mark, "an event");
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    recorder(device).wait_on_host({}, "a device's end");
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  void setCurrentDevice(c10::DeviceIndex device) const override { current().device = device; }
  c10::DeviceIndex getCurrentDevice() const override { return current().device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return std::exchange(current().device, device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  // Numbers are drawn by the host's operators.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*device*/) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
};

}  // namespace

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    static RecordedMemory memory;
    static Hooks hooks;
    static Guard guard;
    c10::register_privateuse1_backend("recording");
    c10::SetAllocator(kType, &memory);
    c10::impl::DeviceGuardImplRegistrar registrar(kType, &guard);
    at::RegisterPrivateUse1HooksInterface(&hooks);
    add_device_graphs(kType, &graphs());
  });
}

Recorder& recorder(c10::DeviceIndex device) { return state_of(device).recorder; }

int current_stream(c10::DeviceIndex device) {
  return current().streams.at(static_cast<size_t>(device));
}

Memory* memory_of(const at::Tensor& tensor) {
  void* const context = tensor.storage().data_ptr().get_context();
  TORCH_CHECK(context != nullptr || tensor.numel() == 0, "the memory of a tensor of shape ",
              tensor.sizes(), " is gone");
  return context == nullptr ? nullptr : static_cast<Block*>(context)->memory;
}

std::vector<Bytes> bytes_in_use(c10::DeviceIndex device) {
  DeviceState& state = state_of(device);
  const std::lock_guard<std::mutex> lock(state.mutex);
  std::vector<Bytes> all;
  for (const auto& entry : state.in_use) {
    all.push_back(entry.second);
  }
  return all;
}

int64_t events_made(c10::DeviceIndex device) { return state_of(device).events_made; }

void watch_allocations(c10::DeviceIndex device, std::function<void(const Bytes&)> watch) {
  DeviceState& state = state_of(device);
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.watch = std::move(watch);
}

at::Tensor on_host(const at::Tensor& tensor) {
  const c10::Storage& memory = tensor.storage();
  c10::DataPtr bytes(nullptr, at::Device(at::kCPU));
  if (auto* const block = static_cast<Block*>(memory.data_ptr().get_context())) {
    bytes = {block->bytes.get(), new std::shared_ptr<void>(block->bytes),
             [](void* owner) { delete static_cast<std::shared_ptr<void>*>(owner); },
             at::Device(at::kCPU)};
  }
  c10::Storage shared(c10::Storage::use_byte_size_t(), memory.nbytes(), std::move(bytes),
                      c10::GetCPUAllocator(), /*resizable=*/true);
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      std::move(shared), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                      tensor.storage_offset());
  return result;
}

}  // namespace fsdp2::recording
