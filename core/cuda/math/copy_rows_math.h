// Copies of many tensors [rows,n], whose rows are contiguous and may lie apart, each times a
// factor, if there is one, and rounded to the type of its target. Rows are cut into chunks, one for
// each block; a launch takes several tensors.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/cuda/math/chunk_table.h"
#include "core/cuda/math/row_team.h"

namespace fsdp2::cuda {

inline constexpr int64_t kCopiedChunk = 8192;
inline constexpr int kCopiesOfLaunch = 64;

// Strides are in elements.
template <typename From, typename To>
struct RowCopy {
  const From* from;
  To* to;
  int64_t rows;
  int64_t n;
  int64_t from_stride;
  int64_t to_stride;
};

FSDP2_HOST_DEVICE inline int64_t chunks_of_row(int64_t n) {
  return (n + kCopiedChunk - 1) / kCopiedChunk;
}

// Passed to a kernel by value.
template <typename From, typename To>
struct RowCopies {
  ChunkTable<kCopiesOfLaunch> table;
  RowCopy<From, To> copies[kCopiesOfLaunch];
  const float* factor = nullptr;  // on the device

  // The table has room.
  void add(const RowCopy<From, To>& copy) {
    copies[table.add(copy.rows * chunks_of_row(copy.n))] = copy;
  }
};

// Without a factor (null), bits stay as they are where the types are one.
template <int kWidth, typename From, typename To>
FSDP2_HOST_DEVICE inline void copy_pack(const From* from, const float* factor, To* to) {
  if (factor != nullptr) {
    auto scaled = load<kWidth>(from);
    for (float& value : scaled.values) {
      value *= *factor;
    }
    store<kWidth>(scaled, to);
  } else if constexpr (std::is_same_v<From, To>) {
    write_pack<kWidth>(read_pack<kWidth>(from), to);
  } else {
    store<kWidth>(load<kWidth>(from), to);
  }
}

template <typename T>
FSDP2_HOST_DEVICE inline bool is_on_border(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kPackBytes == 0;
}

// A member's part of a chunk.
template <typename From, typename To>
FSDP2_HOST_DEVICE inline void copy_chunk(const RowCopies<From, To>& copies, int64_t chunk,
                                         const Member& member) {
  constexpr int kWidth = kPackWidth<From> > kPackWidth<To> ? kPackWidth<From> : kPackWidth<To>;
  const int tensor = copies.table.tensor_of(chunk);
  const RowCopy<From, To>& copy = copies.copies[tensor];
  const int64_t in_tensor = chunk - copies.table.first[tensor];
  const int64_t row = in_tensor / chunks_of_row(copy.n);
  const int64_t begin = in_tensor % chunks_of_row(copy.n) * kCopiedChunk;
  const int64_t left = copy.n - begin;
  const int64_t n = left < kCopiedChunk ? left : kCopiedChunk;
  const From* from = copy.from + row * copy.from_stride + begin;
  To* to = copy.to + row * copy.to_stride + begin;
  const int64_t in_packs = is_on_border(from) && is_on_border(to) ? n / kWidth * kWidth : 0;
  const float* factor = copies.factor;
  for_own_packs<kWidth>(member, in_packs,
                        [&](int64_t i) { copy_pack<kWidth>(from + i, factor, to + i); });
  for_own_packs<1>(member, n - in_packs, [&](int64_t i) {
    copy_pack<1>(from + in_packs + i, factor, to + in_packs + i);
  });
}

}  // namespace fsdp2::cuda
