// The sum of the squares of many tensors' elements, in fp64: exact for this purpose, and without
// overflow. Tensors are cut into chunks, one for each block; a launch takes several tensors.
#pragma once

#include <cstdint>

#include "core/cuda/kernels/row_team.h"

namespace fsdp2::cuda {

inline constexpr int64_t kChunk = 32768;
inline constexpr int kTensorsOfLaunch = 128;

FSDP2_HOST_DEVICE inline int64_t chunks_of(int64_t numel) { return (numel + kChunk - 1) / kChunk; }

// Passed to a kernel by value.
template <typename T>
struct TensorChunks {
  int count = 0;
  const T* data[kTensorsOfLaunch];
  int64_t numel[kTensorsOfLaunch];
  int64_t first_chunk[kTensorsOfLaunch + 1] = {0};  // of each tensor, and behind the last

  // False if there is no room.
  bool add(const T* tensor, int64_t tensor_numel) {
    if (count == kTensorsOfLaunch) {
      return false;
    }
    data[count] = tensor;
    numel[count] = tensor_numel;
    first_chunk[count + 1] = first_chunk[count] + chunks_of(tensor_numel);
    ++count;
    return true;
  }
};

// A member's part of a chunk's sum.
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline double chunk_square_sum(const TensorChunks<T>& tensors, int64_t chunk,
                                                 const Member& member) {
  int first = 0;  // the last tensor that begins at this chunk or before it is in [first, behind)
  int behind = tensors.count;
  while (behind - first > 1) {
    const int middle = (first + behind) / 2;
    (tensors.first_chunk[middle] <= chunk ? first : behind) = middle;
  }
  const int64_t begin = (chunk - tensors.first_chunk[first]) * kChunk;
  const int64_t left = tensors.numel[first] - begin;
  const T* x = tensors.data[first] + begin;
  double sum = 0;
  for_own_parts<kWidth>(member, x, left < kChunk ? left : kChunk, [&](auto width, int64_t i) {
    const auto pack = load<width>(x + i);
    for (const float value : pack.values) {
      sum += static_cast<double>(value) * static_cast<double>(value);
    }
  });
  return sum;
}

}  // namespace fsdp2::cuda
