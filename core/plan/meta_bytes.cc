#include "core/plan/meta_bytes.h"

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace fsdp2::plan {

struct MetaBytes::Count {
  int64_t live = 0;
  int64_t peak = 0;
  int64_t look_at = -1;
  std::function<void()> look;

  void add(int64_t bytes) {
    if (look && live == look_at) {
      std::exchange(look, nullptr)();
    }
    live += bytes;
    peak = std::max(peak, live);
  }
};

namespace {

thread_local std::shared_ptr<MetaBytes::Count> counting;

struct Block {
  std::shared_ptr<MetaBytes::Count> count;
  int64_t bytes;
};

void free_block(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  block->count->add(-block->bytes);
}

// Hands out what meta's own allocator does: nothing, which now knows its size.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (counting == nullptr || bytes == 0) {
      return {nullptr, at::kMeta};
    }
    auto block = std::make_unique<Block>(Block{counting, static_cast<int64_t>(bytes)});
    block->count->add(block->bytes);
    return {nullptr, block.release(), free_block, at::kMeta};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // the context is freed
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}
};

void install_allocator() {
  static const bool installed = [] {
    constexpr uint8_t kAboveMetas = 1;
    static CountingAllocator allocator;
    c10::SetAllocator(at::kMeta, &allocator, kAboveMetas);
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace

MetaBytes::MetaBytes() : count_(std::make_shared<Count>()) {
  FSDP2_CHECK(counting == nullptr, Code::kWrongState,
              "this thread counts the memory of meta tensors already");
  install_allocator();
  counting = count_;
}

MetaBytes::~MetaBytes() { counting.reset(); }

int64_t MetaBytes::live() const { return count_->live; }

int64_t MetaBytes::peak() const { return count_->peak; }

void MetaBytes::look_at(int64_t bytes, std::function<void()> look) {
  count_->look_at = bytes;
  count_->look = std::move(look);
}

}  // namespace fsdp2::plan
