// The sum of the squares of many tensors' elements, in fp64: exact for this purpose, and without
// overflow. Tensors are cut into chunks, one for each block; a launch takes several tensors.
#pragma once

#include <cstdint>

#include "core/cuda/math/chunk_table.h"
#include "core/cuda/math/row_team.h"

namespace fsdp2::cuda {

inline constexpr int64_t kChunk = 32768;
inline constexpr int kTensorsOfLaunch = 128;

FSDP2_HOST_DEVICE inline int64_t chunks_of(int64_t numel) { return (numel + kChunk - 1) / kChunk; }

// Passed to a kernel by value.
template <typename T>
struct TensorChunks {
  ChunkTable<kTensorsOfLaunch> table;
  const T* data[kTensorsOfLaunch];
  int64_t numel[kTensorsOfLaunch];

  // The table has room.
  void add(const T* tensor, int64_t tensor_numel) {
    const int place = table.add(chunks_of(tensor_numel));
    data[place] = tensor;
    numel[place] = tensor_numel;
  }
};

// A member's part of a chunk's sum.
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline double chunk_square_sum(const TensorChunks<T>& tensors, int64_t chunk,
                                                 const Member& member) {
  const int tensor = tensors.table.tensor_of(chunk);
  const int64_t begin = (chunk - tensors.table.first[tensor]) * kChunk;
  const int64_t left = tensors.numel[tensor] - begin;
  const T* x = tensors.data[tensor] + begin;
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
