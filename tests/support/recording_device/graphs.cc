#include "tests/support/recording_device/graphs.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/recording_device/device.h"

namespace fsdp2::recording {

namespace {

using Pieces = std::vector<std::function<void()>>;

// The pieces of the recording under way, by device; several threads give them.
struct Kept {
  std::mutex mutex;
  Pieces* pieces = nullptr;
};

Kept& kept_of(c10::DeviceIndex device) {
  static std::array<Kept, kDevices> all;
  return all.at(static_cast<size_t>(device));
}

void keep_into(c10::DeviceIndex device, Pieces* pieces) {
  Kept& kept = kept_of(device);
  const std::lock_guard<std::mutex> lock(kept.mutex);
  kept.pieces = pieces;
}

// Memory as it was, and what has been allocated since.
class Snapshot {
 public:
  explicit Snapshot(c10::DeviceIndex device) : device_(device) {
    for (Bytes& bytes : bytes_in_use(device)) {
      const auto* data = static_cast<const char*>(bytes.data.get());
      before_.emplace_back(std::move(bytes), std::vector<char>(data, data + bytes.size));
    }
    watch_allocations(device, [this](const Bytes& bytes) { allocated_.push_back(bytes); });
  }
  ~Snapshot() {
    watch_allocations(device_, {});
    for (const auto& [bytes, values] : before_) {
      std::memcpy(bytes.data.get(), values.data(), values.size());
    }
    for (const Bytes& bytes : allocated_) {
      std::memset(bytes.data.get(), 0xFF, bytes.size);
    }
  }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

 private:
  const c10::DeviceIndex device_;
  std::vector<std::pair<Bytes, std::vector<char>>> before_;
  std::vector<Bytes> allocated_;
};

class RecordedGraph final : public DeviceGraph {
 public:
  RecordedGraph(at::Device device, const std::function<void()>& work) : device_(device) {
    const c10::DeviceGuard guard(device_);
    const Snapshot snapshot(device_.index());
    Recorder& of_device = recorder(device_.index());
    const Clock so_far = of_device.mark(current_stream(device_.index()));
    const c10::StreamGuard on_stream(
        c10::impl::VirtualGuardImpl(kType).getNewStream(device_, /*priority=*/0));
    of_device.follow(current_stream(device_.index()), so_far);
    of_device.begin_recording(current_stream(device_.index()));
    keep_into(device_.index(), &pieces_);
    try {
      work();
    } catch (...) {
      keep_into(device_.index(), nullptr);
      of_device.end_recording();
      throw;
    }
    keep_into(device_.index(), nullptr);
    Recorder::Ended ended = of_device.end_recording();
    TORCH_CHECK(ended.problems.empty(), fmt::format("{}", fmt::join(ended.problems, "; ")));
    uses_ = std::move(ended.uses);
  }

  void replay() override {
    const c10::DeviceGuard guard(device_);
    recorder(device_.index()).replay(current_stream(device_.index()), uses_);
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    for (const auto& piece : pieces_) {
      piece();
    }
  }

 private:
  const at::Device device_;
  Pieces pieces_;
  RecordedUses uses_;
};

class RecordedGraphs final : public DeviceGraphs {
 public:
  std::unique_ptr<DeviceGraph> record(at::Device device, const DeviceGraph* /*shares*/,
                                      const std::function<void()>& work) const override {
    return std::make_unique<RecordedGraph>(device, work);
  }
};

}  // namespace

const DeviceGraphs& graphs() {
  static const RecordedGraphs instance;
  return instance;
}

void keep_work(c10::DeviceIndex device, std::function<void()> piece) {
  Kept& kept = kept_of(device);
  const std::lock_guard<std::mutex> lock(kept.mutex);
  if (kept.pieces != nullptr) {
    kept.pieces->push_back(std::move(piece));
  }
}

}  // namespace fsdp2::recording
