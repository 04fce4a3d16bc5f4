#include "tests/core/nn/live_bytes.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <memory>
#include <utility>

namespace fsdp2 {

namespace {

std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};

struct Block {
  c10::DataPtr data;
  int64_t bytes;
};

void free_block(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  live -= block->bytes;
}

class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override {
    auto block =
        std::make_unique<Block>(Block{inner_->allocate(bytes), static_cast<int64_t>(bytes)});
    const int64_t now = live += block->bytes;
    int64_t seen = peak;
    while (now > seen && !peak.compare_exchange_weak(seen, now)) {
    }
    void* data = block->data.get();
    const c10::Device device = block->data.device();
    return {data, block.release(), free_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // data is not the context
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
