#include "core/nn/simd_rows.h"

#include <algorithm>
#include <cstring>

// The library is compiled for any x86-64; these loops also exist for wider vectors, chosen when the
// library is loaded. Not under sanitizers, which are not up yet at that time.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FSDP2_CLONES \
  __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define FSDP2_CLONES
#endif

namespace fsdp2::nn::simd {

namespace {

constexpr int64_t kLanes = 16;  // of the partial sums: vectorisable without reordering by flags

// e^x within 2 ulp; beyond the range of fp32 the nearest power that it holds.
inline float exp_of(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  const float shifted = x * 1.44269504F + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  int32_t bits = 0;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = static_cast<int32_t>(static_cast<uint32_t>(bits) << 23) + (127 << 23);
  float power = 0;  // 2^n: the low bits of `shifted` hold n
  std::memcpy(&power, &bits, sizeof power);
  return p * power;
}

inline float sum_of(const float (&lanes)[kLanes]) {
  float sum = 0;
  for (const float lane : lanes) {
    sum += lane;
  }
  return sum;
}

}  // namespace

FSDP2_CLONES void widen(const c10::BFloat16* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i].x) << 16;
    std::memcpy(&to[i], &bits, sizeof bits);
  }
}

FSDP2_CLONES void widen(const c10::Half* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = from[i];
  }
}

FSDP2_CLONES void narrow(const float* from, c10::BFloat16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &from[i], sizeof bits);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    to[i].x = static_cast<uint16_t>(is_nan ? 0x7fc0U : rounded);
  }
}

FSDP2_CLONES void narrow(const float* from, c10::Half* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = from[i];
  }
}

FSDP2_CLONES float dot(const float* a, const float* b, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += a[i + lane] * b[i + lane];
    }
  }
  float rest = 0;
  for (; i < n; ++i) {
    rest += a[i] * b[i];
  }
  return sum_of(lanes) + rest;
}

FSDP2_CLONES void scale(const float* x, float factor, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = x[i] * factor;
  }
}

FSDP2_CLONES void scale_multiply(const float* x, float factor, const float* w, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = w[i] * (x[i] * factor);
  }
}

// dw += dy * x * rstd; returns sum(dy * w * x).
FSDP2_CLONES float rms_reduce(const float* dy, const float* x, const float* w, float rstd, float* dw,
                              int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float product = dy[i + lane] * x[i + lane];
      lanes[lane] += product * w[i + lane];
      dw[i + lane] += product * rstd;
    }
  }
  float rest = 0;
  for (; i < n; ++i) {
    const float product = dy[i] * x[i];
    rest += product * w[i];
    dw[i] += product * rstd;
  }
  return sum_of(lanes) + rest;
}

FSDP2_CLONES void rms_input_gradient(const float* dy, const float* x, const float* w, float rstd,
                                     float along_x, float* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    dx[i] = rstd * (dy[i] * w[i]) - along_x * x[i];
  }
}

FSDP2_CLONES void silu_multiply(const float* gate, const float* up, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = gate[i] / (1.0F + exp_of(-gate[i])) * up[i];
  }
}

FSDP2_CLONES void silu_multiply_gradients(const float* dy, const float* gate, const float* up,
                                          float* dgate, float* dup, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float sigmoid = 1.0F / (1.0F + exp_of(-gate[i]));
    const float silu = gate[i] * sigmoid;
    const float d = dy[i];
    dup[i] = d * silu;
    dgate[i] = d * up[i] * (sigmoid + silu * (1.0F - sigmoid));
  }
}

FSDP2_CLONES void rotate_head(const float* x, const float* cos, const float* sin, float sign,
                              float* y, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float first = x[i];
    const float second = x[half + i];
    const float s = sign * sin[i];
    y[i] = first * cos[i] - second * s;
    y[half + i] = second * cos[i] + first * s;
  }
}

FSDP2_CLONES float largest(const float* x, int64_t n) {
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, x[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = lanes[lane] < x[i + lane] ? x[i + lane] : lanes[lane];
    }
  }
  float best = lanes[0];
  for (const float lane : lanes) {
    best = std::max(best, lane);
  }
  for (; i < n; ++i) {
    best = std::max(best, x[i]);
  }
  return best;
}

// x = e^(x - shift); returns the sum.
FSDP2_CLONES float exp_and_sum(float* x, float shift, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      x[i + lane] = exp_of(x[i + lane] - shift);
      lanes[lane] += x[i + lane];
    }
  }
  float rest = 0;
  for (; i < n; ++i) {
    x[i] = exp_of(x[i] - shift);
    rest += x[i];
  }
  return sum_of(lanes) + rest;
}

}  // namespace fsdp2::nn::simd
