#include "core/ckpt/bytes/block_memory.h"

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace fsdp2::ckpt {

namespace {

constexpr size_t kMostKept = 8;

struct Stock {
  Stock() { blocks.reserve(kMostKept); }
  std::mutex mutex;
  std::vector<std::unique_ptr<uint8_t[]>> blocks;
};

// Never destroyed: readers may outlive the objects of static duration.
Stock& stock() {
  static auto* const all = new Stock;
  return *all;
}

}  // namespace

BlockMemory::BlockMemory() {
  Stock& kept = stock();
  const std::lock_guard<std::mutex> lock(kept.mutex);
  if (kept.blocks.empty()) {
    bytes_.reset(new uint8_t[static_cast<size_t>(kBlockBytes)]);  // make_unique would clear it
  } else {
    bytes_ = std::move(kept.blocks.back());
    kept.blocks.pop_back();
  }
}

BlockMemory::~BlockMemory() {
  Stock& kept = stock();
  const std::lock_guard<std::mutex> lock(kept.mutex);
  if (kept.blocks.size() < kMostKept) {
    kept.blocks.push_back(std::move(bytes_));
  }
}

}  // namespace fsdp2::ckpt
