#include "core/ckpt/value/chunked_tensor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <set>

#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

namespace {

// Pairs of chunks of one tensor that are compared. Honest grids stay far below.
constexpr int64_t kMaxComparisons = 100'000'000;

std::string box_text(const Box& chunk) {
  return fmt::format("[{}] at [{}]", fmt::join(chunk.sizes, ", "), fmt::join(chunk.offsets, ", "));
}

bool is_empty(const Box& chunk) {
  return std::find(chunk.sizes.begin(), chunk.sizes.end(), 0) != chunk.sizes.end();
}

std::string find_fault_in_box(const Box& chunk, const std::vector<int64_t>& shape) {
  if (chunk.offsets.size() != shape.size() || chunk.sizes.size() != shape.size()) {
    return fmt::format("has a chunk of {} dims, expected {}", chunk.sizes.size(), shape.size());
  }
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const int64_t offset = chunk.offsets[dim];
    const int64_t size = chunk.sizes[dim];
    if (offset < 0 || size < 0 || offset > shape[dim] || size > shape[dim] - offset) {
      return fmt::format("has a chunk {} outside its shape [{}]", box_text(chunk),
                         fmt::join(shape, ", "));
    }
  }
  return "";
}

bool overlap(const Box& a, const Box& b) {
  for (size_t dim = 0; dim < a.offsets.size(); ++dim) {
    if (a.offsets[dim] >= b.offsets[dim] + b.sizes[dim] ||
        b.offsets[dim] >= a.offsets[dim] + a.sizes[dim]) {
      return false;
    }
  }
  return true;
}

// The dim along which a sweep meets the fewest chunks at a time.
size_t sweep_dim(const ChunkedTensor& tensor) {
  size_t best = 0;
  size_t most = 0;
  for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
    std::set<int64_t> starts;
    for (const Box& chunk : tensor.chunks) {
      starts.insert(chunk.offsets[dim]);
    }
    if (starts.size() > most) {
      most = starts.size();
      best = dim;
    }
  }
  return best;
}

// Goes through the chunks by where they begin along one dim, with those at hand that have not ended
// there.
std::string find_overlap(const ChunkedTensor& tensor) {
  const size_t dim = sweep_dim(tensor);
  std::vector<const Box*> order;
  for (const Box& chunk : tensor.chunks) {
    if (!is_empty(chunk)) {
      order.push_back(&chunk);
    }
  }
  if (tensor.shape.empty()) {
    return order.size() > 1 ? "has more than one chunk, but no dims" : "";
  }
  std::sort(order.begin(), order.end(),
            [&](const Box* a, const Box* b) { return a->offsets[dim] < b->offsets[dim]; });
  std::vector<const Box*> open;
  int64_t comparisons = 0;
  for (const Box* chunk : order) {
    const auto ended = [&](const Box* other) {
      return other->offsets[dim] + other->sizes[dim] <= chunk->offsets[dim];
    };
    open.erase(std::remove_if(open.begin(), open.end(), ended), open.end());
    comparisons += static_cast<int64_t>(open.size());
    if (comparisons > kMaxComparisons) {
      return fmt::format("has {} chunks in no order that could be checked", order.size());
    }
    for (const Box* other : open) {
      if (overlap(*chunk, *other)) {
        return fmt::format("has chunks that overlap: {} and {}", box_text(*other),
                           box_text(*chunk));
      }
    }
    open.push_back(chunk);
  }
  return "";
}

}  // namespace

std::string find_fault(const ChunkedTensor& tensor) {
  if (tensor_bytes(tensor.dtype, tensor.shape) < 0) {
    return fmt::format("has a shape of [{}], which is too large or negative",
                       fmt::join(tensor.shape, ", "));
  }
  for (const Box& chunk : tensor.chunks) {
    if (std::string fault = find_fault_in_box(chunk, tensor.shape); !fault.empty()) {
      return fault;
    }
  }
  return find_overlap(tensor);
}

bool covers(const ChunkedTensor& tensor) {
  int64_t held = 0;
  for (const Box& chunk : tensor.chunks) {
    held += numel_of(chunk.sizes);
  }
  return held == numel_of(tensor.shape);
}

}  // namespace fsdp2::ckpt
