#pragma once

#include <cstdint>

namespace fsdp2 {

/// Lets this thread allocate `count` times more by operator new while it lives; after that operator
/// new throws std::bad_alloc. A test that links this library has its operator new in the place of
/// the standard one.
class FewAllocations {
 public:
  explicit FewAllocations(int64_t count);
  ~FewAllocations();
  FewAllocations(const FewAllocations&) = delete;
  FewAllocations& operator=(const FewAllocations&) = delete;
};

}  // namespace fsdp2
