#include "core/memory/page_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <new>

namespace fsdp2::memory {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* pointer_to(uintptr_t address) { return reinterpret_cast<void*>(address); }

// In huge pages where the system gives them on request.
void* map_pages(size_t size) {
  void* pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    return nullptr;
  }
  static_cast<void>(::madvise(pages, size, MADV_HUGEPAGE));
  return pages;
}

}  // namespace

void* PageHeap::take(size_t bytes, bool* is_zero) {
  if (bytes > std::numeric_limits<size_t>::max() / 2) {
    return nullptr;
  }
  const size_t size = rounded_up(bytes, kPage);
  Address begin = take_kept(size);
  const bool is_fresh = begin == 0;
  if (is_fresh) {
    begin = take_fresh(size);
  }
  if (is_zero != nullptr) {
    *is_zero = is_fresh;
  }
  if (begin == 0) {
    return nullptr;
  }
  try {
    taken_.emplace(pointer_to(begin), size);
  } catch (const std::bad_alloc&) {
    ::munmap(pointer_to(begin), size);
    return nullptr;
  }
  in_use_ += size;
  most_in_use_ = std::max(most_in_use_, in_use_);
  return pointer_to(begin);
}

void PageHeap::give(void* block) noexcept {
  const auto taken = taken_.find(block);
  const size_t size = taken->second;
  taken_.erase(taken);
  in_use_ -= size;
  keep(reinterpret_cast<Address>(block), size);
}

void PageHeap::give_back_kept() {
  give_back(kept_);
  most_in_use_ = in_use_;
}

PageHeap::Address PageHeap::take_kept(size_t size) {
  const auto fit = by_size_.lower_bound({size, 0});
  if (fit == by_size_.end()) {
    return 0;
  }
  const auto [whole, begin] = *fit;
  forget(ranges_.find(begin));
  if (whole > size) {
    keep(begin + size, whole - size);
  }
  return begin;
}

PageHeap::Address PageHeap::take_fresh(size_t size) {
  const size_t most = std::max(most_in_use_, in_use_ + size);
  if (in_use_ + kept_ + size > most) {
    give_back(in_use_ + kept_ + size - most);
  }
  void* pages = map_pages(size);
  if (pages == nullptr && kept_ > 0) {
    give_back(kept_);
    pages = map_pages(size);
  }
  return reinterpret_cast<Address>(pages);
}

// A range that there is no memory left to note goes to the system.
void PageHeap::keep(Address begin, size_t size) noexcept {
  kept_ += size;
  const auto after = ranges_.find(begin + size);
  if (after != ranges_.end()) {
    size += after->second;
    kept_ += after->second;
    forget(after);
  }
  const auto next = ranges_.lower_bound(begin);
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      size += before->second;
      kept_ += before->second;
      forget(before);
    }
  }
  try {
    ranges_.emplace(begin, size);
    by_size_.emplace(size, begin);
  } catch (const std::bad_alloc&) {
    ranges_.erase(begin);
    kept_ -= size;
    ::munmap(pointer_to(begin), size);
  }
}

void PageHeap::forget(std::map<Address, size_t>::iterator range) {
  kept_ -= range->second;
  by_size_.erase({range->second, range->first});
  ranges_.erase(range);
}

// From the largest ranges, and whole huge pages of them, so that the rest stays of huge pages.
void PageHeap::give_back(size_t size) {
  while (size > 0 && kept_ > 0) {
    const auto [whole, begin] = *by_size_.rbegin();
    const size_t part = std::min(whole, rounded_up(size, kHugePage));
    forget(ranges_.find(begin));
    if (whole > part) {
      keep(begin, whole - part);
    }
    ::munmap(pointer_to(begin + whole - part), part);
    size -= std::min(size, part);
  }
}

}  // namespace fsdp2::memory
