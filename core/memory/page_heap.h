// Pages for large blocks of memory, which are kept when a block is freed and given out again. A
// training step takes the same blocks as the one before it, and pages fresh from the system cost a
// fault and a pass of zeros each.
//
// Kept pages are ranges of addresses. A block comes from the smallest range that it fits into; what
// it leaves of the range, and neighbours that are both kept, stay whole ranges. Kept pages and
// those in use are together never more than were in use at once: where no range is large enough,
// others go back to the system before fresh pages come. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace fsdp2::memory {

class PageHeap {
 public:
  static constexpr size_t kPage = 65536;  // whole pages of the system, whichever size it has

  PageHeap() = default;
  ~PageHeap() { give_back_kept(); }
  PageHeap(const PageHeap&) = delete;
  PageHeap& operator=(const PageHeap&) = delete;

  // A block of whole pages with any content; null if the system has no more. is_zero, if it is
  // given: whether all of it is fresh from the system, which gives zeros. REQUIRES: bytes > 0
  void* take(size_t bytes, bool* is_zero = nullptr);
  bool holds(void* block) const { return taken_.count(block) > 0; }
  // REQUIRES: holds(block)
  void give(void* block) noexcept;
  // Returns what is kept to the system, and counts most_in_use anew.
  void give_back_kept();

  size_t in_use() const { return in_use_; }
  size_t kept() const { return kept_; }
  size_t most_in_use() const { return most_in_use_; }

 private:
  using Address = uintptr_t;

  Address take_kept(size_t size);   // 0: no range is large enough
  Address take_fresh(size_t size);  // 0: the system has no more
  void keep(Address begin, size_t size) noexcept;
  void forget(std::map<Address, size_t>::iterator range);
  void give_back(size_t size);  // at least, or all that is kept

  std::unordered_map<void*, size_t> taken_;
  std::map<Address, size_t> ranges_;              // no two touch each other
  std::set<std::pair<size_t, Address>> by_size_;  // the same
  size_t in_use_ = 0;
  size_t kept_ = 0;
  size_t most_in_use_ = 0;
};

}  // namespace fsdp2::memory
