#include "core/ckpt/ranks/snapshot_memory.h"

#include <ATen/ops/empty.h>
#include <sys/mman.h>

#include "core/base/quiet_thread.h"

namespace fsdp2::ckpt {

namespace {

// In huge pages where the system gives them on request: small ones cost a fault each.
void ask_for_huge_pages(const at::Tensor& memory) {
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<uintptr_t>(memory.data_ptr());
  const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (begin + memory.nbytes()) / kHugePage * kHugePage;
  if (first < last) {
    static_cast<void>(::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE));
  }
}

void touch(const at::Tensor& memory, int64_t bytes) {
  constexpr int64_t kPage = 4096;
  volatile uint8_t* const begin = memory.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < bytes; i += kPage) {
    begin[i] = 0;
  }
}

}  // namespace

SnapshotMemory::~SnapshotMemory() { wait(); }

void SnapshotMemory::reserve(int64_t bytes, int64_t expected) {
  if (has_room(bytes)) {
    return;
  }
  make(bytes);
  toucher_ = start_quiet_thread([memory = memory_, expected] { touch(memory, expected); });
}

const at::Tensor& SnapshotMemory::take(int64_t bytes) {
  wait();
  if (!has_room(bytes)) {
    make(bytes);
  }
  return memory_;
}

void SnapshotMemory::make(int64_t bytes) {
  wait();
  memory_.reset();  // not both at once
  memory_ = at::empty({bytes}, at::device(at::kCPU).dtype(at::kByte));
  ask_for_huge_pages(memory_);
}

void SnapshotMemory::wait() {
  if (toucher_.joinable()) {
    toucher_.join();
  }
}

}  // namespace fsdp2::ckpt
