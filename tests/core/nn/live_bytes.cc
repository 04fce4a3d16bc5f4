#include "tests/core/nn/live_bytes.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace fsdp2 {

namespace {

std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};

struct Block {
  c10::DataPtr data;
  int64_t bytes;
};

// By their memory, which is all that LibTorch's raw allocations know of a block. Never destroyed:
// tensors are freed when the process ends.
std::mutex mutex;
auto& blocks = *new std::unordered_map<void*, Block>;
c10::Allocator* const uncounted = c10::GetCPUAllocator();

void free_block(void* data) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto block = blocks.find(data);
  if (block == blocks.end()) {  // raw memory from before anything was counted
    uncounted->raw_deleter()(data);
    return;
  }
  live -= block->second.bytes;
  blocks.erase(block);
}

class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr block = inner_->allocate(bytes);
    void* data = block.get();
    if (data == nullptr) {
      return block;
    }
    const c10::Device device = block.device();
    const int64_t now = live += static_cast<int64_t>(bytes);
    int64_t seen = peak;
    while (now > seen && !peak.compare_exchange_weak(seen, now)) {
    }
    const std::lock_guard<std::mutex> lock(mutex);
    blocks.emplace(data, Block{std::move(block), static_cast<int64_t>(bytes)});
    return {data, data, free_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_block; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* inner_;
};

void install() {
  constexpr uint8_t kAboveAll = 255;
  static CountingAllocator* allocator = [] {
    auto* made = new CountingAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(made, kAboveAll);
    return made;
  }();
  static_cast<void>(allocator);
}

}  // namespace

int64_t live_bytes() {
  install();
  return live;
}

PeakBytes::PeakBytes() { peak = live_bytes(); }

int64_t PeakBytes::get() const { return peak; }

}  // namespace fsdp2
