// CRC-32 by folding: carry-less products bring 64 bytes at a time down to 16, which is several
// times faster than tables. After "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction" (Gopal et al., Intel 2009), in the bit-reflected form; the constants are remainders
// of powers of x by the polynomial 0x104C11DB7, from that paper. Other machines take LibTorch's
// tables, which are the source of its zip writer, included once, here.
#include <caffe2/serialize/crc_alt.h>

#include "core/ckpt/torch/zip.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fsdp2::ckpt {

#if defined(__x86_64__)

namespace {

constexpr size_t kFoldBytes = 64;
constexpr size_t kLaneBytes = 16;

#define FSDP2_FOLDING __attribute__((target("pclmul,sse4.1")))

FSDP2_FOLDING __m128i load(const uint8_t* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

// Moves a lane ahead by the distance that the two constants stand for, and adds what is there.
FSDP2_FOLDING __m128i fold(__m128i lane, __m128i constants, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(lane, constants, 0x00);
  const __m128i high = _mm_clmulepi64_si128(lane, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// 16 bytes to 4: to 8, to 6, and Barrett's reduction.
FSDP2_FOLDING uint32_t reduce(__m128i lane) {
  const __m128i by_8_bytes = _mm_set_epi64x(0, 0x0163CD6124);
  const __m128i by_16_bytes = _mm_set_epi64x(0x00CCAA009E, 0x01751997D0);
  const __m128i polynomial = _mm_set_epi64x(0x01F7011641, 0x01DB710641);
  const __m128i low_32 = _mm_setr_epi32(~0, 0, ~0, 0);

  __m128i carry = _mm_clmulepi64_si128(lane, by_16_bytes, 0x10);
  lane = _mm_xor_si128(_mm_srli_si128(lane, 8), carry);
  carry = _mm_srli_si128(lane, 4);
  lane = _mm_clmulepi64_si128(_mm_and_si128(lane, low_32), by_8_bytes, 0x00);
  lane = _mm_xor_si128(lane, carry);
  carry = _mm_clmulepi64_si128(_mm_and_si128(lane, low_32), polynomial, 0x10);
  carry = _mm_clmulepi64_si128(_mm_and_si128(carry, low_32), polynomial, 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(lane, carry), 1));
}

// REQUIRES: count is a multiple of 16, at least 64. `state` is the checksum inverted.
FSDP2_FOLDING uint32_t fold_all(const uint8_t* data, size_t count, uint32_t state) {
  const __m128i by_64_bytes = _mm_set_epi64x(0x01C6E41596, 0x0154442BD4);
  const __m128i by_16_bytes = _mm_set_epi64x(0x00CCAA009E, 0x01751997D0);
  __m128i lanes[4];
  for (size_t i = 0; i < 4; ++i) {
    lanes[i] = load(data + i * kLaneBytes);
  }
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  data += kFoldBytes;
  count -= kFoldBytes;
  for (; count >= kFoldBytes; data += kFoldBytes, count -= kFoldBytes) {
    for (size_t i = 0; i < 4; ++i) {
      lanes[i] = fold(lanes[i], by_64_bytes, load(data + i * kLaneBytes));
    }
  }
  __m128i lane = lanes[0];
  for (size_t i = 1; i < 4; ++i) {
    lane = fold(lane, by_16_bytes, lanes[i]);
  }
  for (; count > 0; data += kLaneBytes, count -= kLaneBytes) {
    lane = fold(lane, by_16_bytes, load(data));
  }
  return reduce(lane);
}

bool has_folding() {
  static const bool has =
      __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
  return has;
}

}  // namespace

uint32_t zip_checksum(const void* data, size_t count, uint32_t before) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  if (count >= kFoldBytes && has_folding()) {
    const size_t folded = count / kLaneBytes * kLaneBytes;
    before = ~fold_all(bytes, folded, ~before);
    bytes += folded;
    count -= folded;
  }
  return crc32_fast(bytes, count, before);
}

#else

uint32_t zip_checksum(const void* data, size_t count, uint32_t before) {
  return crc32_fast(data, count, before);
}

#endif

}  // namespace fsdp2::ckpt
