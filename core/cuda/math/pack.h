// Packs: so many neighbouring elements that a thread reads or writes them by one access of 16
// bytes, or single elements where memory or a row is not cut so. Functions on them work in fp32 and
// round once, when they store.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda/math/host_device.h"

namespace fsdp2::cuda {

inline constexpr size_t kPackBytes = 16;
template <typename T>
inline constexpr int kPackWidth = static_cast<int>(kPackBytes / sizeof(T));

// A width as an argument: std::integral_constant, but also for the device.
template <int kWidth>
struct Width {
  FSDP2_HOST_DEVICE constexpr operator int() const { return kWidth; }
};

template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth < kPackBytes ? sizeof(T) * kWidth : kPackBytes) Pack {
  T values[kWidth];
};

template <int kWidth>
struct Floats {
  float values[kWidth];
};

// Device code moves packs as whole words: from the elements alone, the compiler does not always see
// that one access reaches them all.
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline Pack<T, kWidth> read_pack(const T* from) {
#ifdef __CUDA_ARCH__
  if constexpr (kWidth > 1) {
    Pack<T, kWidth> pack;
    for (size_t i = 0; i < sizeof(pack) / kPackBytes; ++i) {
      reinterpret_cast<uint4*>(&pack)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
    return pack;
  }
#endif
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}

template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline void write_pack(const Pack<T, kWidth>& pack, T* to) {
#ifdef __CUDA_ARCH__
  if constexpr (kWidth > 1) {
    for (size_t i = 0; i < sizeof(pack) / kPackBytes; ++i) {
      const uint4 words = reinterpret_cast<const uint4*>(&pack)[i];
      asm volatile("st.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(reinterpret_cast<uint4*>(to) + i),
                   "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
                   : "memory");
    }
    return;
  }
#endif
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}

template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline Floats<kWidth> load(const T* from) {
  const auto pack = read_pack<kWidth>(from);
  Floats<kWidth> floats;
  for (int i = 0; i < kWidth; ++i) {
    floats.values[i] = static_cast<float>(pack.values[i]);
  }
  return floats;
}

// Zeros where there is no memory to read.
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline Floats<kWidth> load_or_zero(const T* from, int64_t i) {
  return from != nullptr ? load<kWidth>(from + i) : Floats<kWidth>{};
}

template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline void store(const Floats<kWidth>& floats, T* to) {
  Pack<T, kWidth> pack;
  for (int i = 0; i < kWidth; ++i) {
    pack.values[i] = static_cast<T>(floats.values[i]);
  }
  write_pack<kWidth>(pack, to);
}

// Calls work(width, i) for the pack of n elements that begins at `at`: once, or, for the rest at
// the end that fills no pack, once an element with width 1.
template <int kWidth, typename Work>
FSDP2_HOST_DEVICE inline void for_pack(int64_t at, int64_t n, const Work& work) {
  if (at + kWidth <= n) {
    work(Width<kWidth>(), at);
    return;
  }
  for (; at < n; ++at) {
    work(Width<1>(), at);
  }
}

}  // namespace fsdp2::cuda
