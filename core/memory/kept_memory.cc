#include "core/memory/kept_memory.h"

#include <ATen/ops/zeros_like.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <pthread.h>

#include <cstdint>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/memory/page_heap.h"

namespace fsdp2::memory {

namespace {

// What all blocks of the heap are aligned to, as pages of any system are.
constexpr uintptr_t kSmallestPage = 4096;

// Never destroyed: tensors are freed when the process ends.
struct Shared {
  std::mutex mutex;
  PageHeap heap;  // with the mutex held, as what is below
  bool is_on = false;
  c10::Allocator* before = nullptr;  // constant once it is set

  static Shared& get() {
    static auto& shared = *new Shared;
    return shared;
  }
};

void* take(size_t bytes, bool* is_zero = nullptr) {
  if (bytes < kLargeBytes) {
    return nullptr;
  }
  Shared& shared = Shared::get();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  return shared.is_on ? shared.heap.take(bytes, is_zero) : nullptr;
}

bool is_ours(void* block) {
  if (reinterpret_cast<uintptr_t>(block) % kSmallestPage != 0) {
    return false;
  }
  Shared& shared = Shared::get();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  return shared.heap.holds(block);
}

void give(void* block) {
  Shared& shared = Shared::get();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  shared.heap.give(block);
  if (!shared.is_on) {
    shared.heap.give_back_kept();
  }
}

// LibTorch's profiler is told as its own allocator would, without the lock: it calls others.
void free_block(void* block) {
  if (is_ours(block)) {
    c10::profiledCPUMemoryReporter().Delete(block);
    give(block);
  } else {
    Shared::get().before->raw_deleter()(block);
  }
}

// A block that take() has given.
c10::DataPtr noted(void* block, size_t bytes) {
  c10::profiledCPUMemoryReporter().New(block, bytes);
  return {block, block, free_block, at::kCPU};
}

class KeepingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (void* block = take(bytes); block != nullptr) {
      return noted(block, bytes);
    }
    c10::Allocator& before = *Shared::get().before;
    c10::DataPtr block = before.allocate(bytes);
    static_cast<void>(block.compare_exchange_deleter(before.raw_deleter(), free_block));
    return block;
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_block; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

// A child of a fork has its own copy of the heap, in one piece.
void hold_in_forks() {
  ::pthread_atfork([] { Shared::get().mutex.lock(); }, [] { Shared::get().mutex.unlock(); },
                   [] { Shared::get().mutex.unlock(); });
}

// With the mutex held.
void install(Shared& shared) {
  constexpr uint8_t kAboveLibTorchs = 1;
  static auto* const allocator = new KeepingAllocator;  // outlives all tensors
  c10::Allocator* before = c10::GetCPUAllocator();
  FSDP2_CHECK(before->raw_deleter() != nullptr, Code::kUnsupported,
              "memory cannot be kept: another library has given LibTorch an allocator whose blocks "
              "are not freed by their address alone");
  shared.before = before;
  c10::SetCPUAllocator(allocator, kAboveLibTorchs);
  if (c10::GetCPUAllocator() != allocator) {
    shared.before = nullptr;
    fail(Code::kUnsupported,
         "memory cannot be kept: another library has given LibTorch an allocator of a higher "
         "priority than {}",
         kAboveLibTorchs);
  }
  hold_in_forks();
}

}  // namespace

void keep_memory(bool on) {
  Shared& shared = Shared::get();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  if (on && shared.before == nullptr) {
    install(shared);
  }
  shared.is_on = on;
  if (!on) {
    shared.heap.give_back_kept();
  }
}

at::Tensor zeros_like(const at::Tensor& like, at::ScalarType dtype) {
  const bool is_plain = like.is_cpu() && like.layout() == c10::kStrided && like.is_contiguous();
  const size_t bytes = static_cast<size_t>(like.numel()) * c10::elementSize(dtype);
  bool is_zero = false;
  void* block = is_plain ? take(bytes, &is_zero) : nullptr;
  if (block == nullptr) {
    return at::zeros_like(like, like.options().dtype(dtype));
  }
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, noted(block, bytes),
                       c10::GetCPUAllocator(), /*resizable=*/true);
  const at::Tensor zeros = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      caffe2::TypeMeta::fromScalarType(dtype));
  zeros.unsafeGetTensorImpl()->set_sizes_contiguous(like.sizes());
  return is_zero ? zeros : zeros.zero_();
}

KeptMemory kept_memory() {
  Shared& shared = Shared::get();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  return {shared.is_on, shared.heap.in_use(), shared.heap.kept()};
}

}  // namespace fsdp2::memory
