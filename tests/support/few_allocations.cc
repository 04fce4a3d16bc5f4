#include "tests/support/few_allocations.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

constexpr int64_t kNoLimit = -1;
thread_local int64_t allocations_left = kNoLimit;

}  // namespace

void* operator new(size_t bytes) {
  if (allocations_left == 0) {
    throw std::bad_alloc();
  }
  if (allocations_left > 0) {
    --allocations_left;
  }
  void* memory = std::malloc(bytes);
  return memory != nullptr ? memory : throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { std::free(memory); }

namespace fsdp2 {

FewAllocations::FewAllocations(int64_t count) { allocations_left = count; }

FewAllocations::~FewAllocations() { allocations_left = kNoLimit; }

}  // namespace fsdp2
