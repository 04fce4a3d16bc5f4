#include "core/comm/transport/sum_parts.h"

#include <algorithm>

// As in core/nn/kernels/simd_rows.cc: also for wider vectors, chosen when the library is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FSDP2_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FSDP2_CLONES
#endif

namespace fsdp2 {

namespace {

constexpr int64_t kLanes = 64;  // elements whose sums stay in registers

// Inlined by force: a call from a clone for wider vectors would keep its loop from being
// vectorised.
[[gnu::always_inline]] inline float wide(float x) { return x; }

[[gnu::always_inline]] inline float wide(c10::BFloat16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.x) << 16);
}

[[gnu::always_inline]] inline void store(float x, float* to) { *to = x; }

// To nearest even.
[[gnu::always_inline]] inline void store(float x, c10::BFloat16* to) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  to->x = static_cast<uint16_t>(is_nan ? 0x7fc0U : rounded);
}

// All that is read of `count` elements is read before one is written.
template <typename In, typename Out>
[[gnu::always_inline]] inline void sum_lanes(c10::ArrayRef<const In*> parts, float divisor,
                                             Out* out, int64_t begin, int64_t count) {
  float sums[kLanes];
  for (int64_t i = 0; i < count; ++i) {
    sums[i] = wide(parts[0][begin + i]);
  }
  for (size_t part = 1; part < parts.size(); ++part) {
    const In* const values = parts[part] + begin;
    for (int64_t i = 0; i < count; ++i) {
      sums[i] += wide(values[i]);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    store(sums[i] / divisor, out + begin + i);
  }
}

template <typename In, typename Out>
[[gnu::always_inline]] inline void sum_all(c10::ArrayRef<const In*> parts, float divisor, Out* out,
                                           int64_t n) {
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t begin = 0; begin < whole; begin += kLanes) {
    sum_lanes(parts, divisor, out, begin, kLanes);
  }
  sum_lanes(parts, divisor, out, whole, n - whole);
}

}  // namespace

FSDP2_CLONES void sum_parts(c10::ArrayRef<const float*> parts, float divisor, float* out,
                            int64_t n) {
  sum_all(parts, divisor, out, n);
}

FSDP2_CLONES void sum_parts(c10::ArrayRef<const c10::BFloat16*> parts, float divisor,
                            c10::BFloat16* out, int64_t n) {
  sum_all(parts, divisor, out, n);
}

FSDP2_CLONES void sum_parts(c10::ArrayRef<const c10::BFloat16*> parts, float divisor, float* out,
                            int64_t n) {
  sum_all(parts, divisor, out, n);
}

FSDP2_CLONES void sum_parts(c10::ArrayRef<const float*> parts, float divisor, c10::BFloat16* out,
                            int64_t n) {
  sum_all(parts, divisor, out, n);
}

}  // namespace fsdp2
