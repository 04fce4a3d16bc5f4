#include "core/nn/kernels/simd_rows.h"

#include <algorithm>
#include <cmath>

// The library is compiled for any x86-64; these loops also exist for wider vectors, chosen when the
// library is loaded. Not under sanitizers, which are not up yet at that time.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FSDP2_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FSDP2_CLONES
#endif

namespace fsdp2::nn::simd {

namespace {

// Rows do not overlap (but for one that is written in place), which the compiler cannot know: it
// would compare their addresses and keep a second, scalar loop for rows that lie close together, in
// which it joins other multiplications and additions into one rounding. The bits would then depend
// on where the rows lie.
#if defined(__GNUC__) && !defined(__clang__)
#define FSDP2_ROWS_APART _Pragma("GCC ivdep")
#elif defined(__clang__)
#define FSDP2_ROWS_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define FSDP2_ROWS_APART
#endif

constexpr int64_t kLanes = 16;  // of the partial sums: vectorisable without reordering by flags
constexpr float kFarthest = 64;

// e^x within 2 ulp, for x within 64 of 0 and else as if it were at that end: numbers so small that
// their products would be denormal, on which CPUs are many times slower, do not matter here.
// Inlined by force: a call from a clone for wider vectors would keep the loop from being
// vectorised.
[[gnu::always_inline]] inline float exp_of(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  x = x < -kFarthest ? -kFarthest : x;
  x = x > kFarthest ? kFarthest : x;
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
  // 2^n: the low bits of `shifted` hold n.
  return p *
         __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, shifted) << 23) + (127U << 23));
}

[[gnu::always_inline]] inline float sum_of(const float (&lanes)[kLanes]) {
  float sum = 0;
  for (const float lane : lanes) {
    sum += lane;
  }
  return sum;
}

// The bits of x rounded to bf16, to nearest even.
[[gnu::always_inline]] inline uint16_t bf16_of(float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<uint16_t>(is_nan ? 0x7fc0U : rounded);
}

[[gnu::always_inline]] inline uint32_t larger_magnitude(uint32_t largest, float x) {
  const uint32_t magnitude = __builtin_bit_cast(uint32_t, x) & 0x7fffffffU;
  return largest < magnitude ? magnitude : largest;
}

}  // namespace

FSDP2_CLONES void widen(const c10::BFloat16* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = __builtin_bit_cast(float, static_cast<uint32_t>(from[i].x) << 16);
  }
}

FSDP2_CLONES void widen(const c10::Half* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = from[i];
  }
}

FSDP2_CLONES void narrow(const float* from, c10::BFloat16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[i].x = bf16_of(from[i]);
  }
}

FSDP2_CLONES void narrow(const float* from, c10::Half* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = from[i];
  }
}

FSDP2_CLONES uint32_t split(const float* x, c10::BFloat16* high, c10::BFloat16* low, int64_t n) {
  uint32_t largest = 0;
  FSDP2_ROWS_APART
  for (int64_t i = 0; i < n; ++i) {
    high[i].x = bf16_of(x[i]);
    low[i].x = bf16_of(x[i] - __builtin_bit_cast(float, uint32_t{high[i].x} << 16));
    largest = larger_magnitude(largest, x[i]);
  }
  return largest;
}

FSDP2_CLONES uint32_t split(const float* x, c10::BFloat16* high, int64_t n) {
  uint32_t largest = 0;
  FSDP2_ROWS_APART
  for (int64_t i = 0; i < n; ++i) {
    high[i].x = bf16_of(x[i]);
    largest = larger_magnitude(largest, x[i]);
  }
  return largest;
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
  FSDP2_ROWS_APART
  for (int64_t i = 0; i < n; ++i) {
    y[i] = x[i] * factor;
  }
}

FSDP2_CLONES void add(const float* x, float* y, int64_t n) {
  FSDP2_ROWS_APART
  for (int64_t i = 0; i < n; ++i) {
    y[i] += x[i];
  }
}

FSDP2_CLONES void scale_multiply(const float* x, float factor, const float* w, float* y,
                                 int64_t n) {
  FSDP2_ROWS_APART
  for (int64_t i = 0; i < n; ++i) {
    y[i] = w[i] * (x[i] * factor);
  }
}

// dw += dy * x * rstd; returns sum(dy * w * x).
FSDP2_CLONES float rms_reduce(const float* dy, const float* x, const float* w, float rstd,
                              float* dw, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    FSDP2_ROWS_APART
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float product = dy[i + lane] * x[i + lane];
      lanes[lane] += product * w[i + lane];
      dw[i + lane] += product * rstd;
    }
  }
  float rest = 0;
  FSDP2_ROWS_APART
  for (; i < n; ++i) {
    const float product = dy[i] * x[i];
    rest += product * w[i];
    dw[i] += product * rstd;
  }
  return sum_of(lanes) + rest;
}

FSDP2_CLONES void rms_input_gradient(const float* dy, const float* x, const float* w, float rstd,
                                     float along_x, float* dx, int64_t n) {
  FSDP2_ROWS_APART
  for (int64_t i = 0; i < n; ++i) {
    dx[i] = rstd * (dy[i] * w[i]) - along_x * x[i];
  }
}

FSDP2_CLONES void silu_multiply(const float* gate, const float* up, float* y, int64_t n) {
  FSDP2_ROWS_APART
  for (int64_t i = 0; i < n; ++i) {
    y[i] = gate[i] * (1.0F / (1.0F + exp_of(-gate[i]))) * up[i];
  }
}

FSDP2_CLONES void silu_multiply_gradients(const float* dy, const float* gate, const float* up,
                                          float* dgate, float* dup, int64_t n) {
  FSDP2_ROWS_APART
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
  FSDP2_ROWS_APART
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
      const float distance = x[i + lane] - shift;
      x[i + lane] = distance < -kFarthest ? 0.0F : exp_of(distance);
      lanes[lane] += x[i + lane];
    }
  }
  float rest = 0;
  for (; i < n; ++i) {
    const float distance = x[i] - shift;
    x[i] = distance < -kFarthest ? 0.0F : exp_of(distance);
    rest += x[i];
  }
  return sum_of(lanes) + rest;
}

FSDP2_CLONES void softmax_gradients(const float* weights, float along, float* dx, int64_t n) {
  FSDP2_ROWS_APART
  for (int64_t i = 0; i < n; ++i) {
    dx[i] = weights[i] * (dx[i] - along);
  }
}

FSDP2_CLONES void transpose(const float* from, int64_t ld_from, int64_t rows, int64_t columns,
                            float* to, int64_t ld_to) {
  for (int64_t row = 0; row < rows; row += kLanes) {
    const int64_t n = std::min(kLanes, rows - row);
    for (int64_t column = 0; column < columns; ++column) {
      const float* x = from + row * ld_from + column;
      float* y = to + column * ld_to + row;
      FSDP2_ROWS_APART
      for (int64_t i = 0; i < n; ++i) {
        y[i] = x[i * ld_from];
      }
    }
  }
}

FSDP2_CLONES void adamw(const AdamWNumbers& numbers, float* param, float* grad, float* exp_avg,
                        float* exp_avg_sq, int64_t n) {
  const AdamWNumbers c = numbers;  // which no row overlaps
  // An infinite parameter without decay is not to make the gradient NaN.
  const bool is_coupled = c.coupled_decay != 0;
  FSDP2_ROWS_APART
  for (int64_t i = 0; i < n; ++i) {
    const float divided = grad[i] / c.divisor;
    grad[i] = divided;
    const float g = is_coupled ? divided + param[i] * c.coupled_decay : divided;
    exp_avg[i] += c.beta1_rest * (g - exp_avg[i]);
    exp_avg_sq[i] = exp_avg_sq[i] * c.beta2 + g * g * c.beta2_rest;
    const float size = std::sqrt(exp_avg_sq[i]) / c.root_of_correction2 + c.eps;
    param[i] = param[i] * c.kept - c.step_size * exp_avg[i] / size;
  }
}

FSDP2_CLONES void hash_places(HashKeys keys, uint64_t place, uint32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t at = place + static_cast<uint64_t>(i);
    const uint32_t first = hash_of(static_cast<uint32_t>(at) ^ keys.first);
    out[i] = hash_of(first + keys.second + static_cast<uint32_t>(at >> 32) * 0x9e3779b9U);
  }
}

FSDP2_CLONES void narrow_by_chance(const float* x, const uint32_t* random, c10::BFloat16* to,
                                   int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = __builtin_bit_cast(uint32_t, x[i]);
    const bool is_finite = (bits & 0x7f800000U) != 0x7f800000U;
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    const uint32_t rounded = (bits + (is_finite ? random[i] & 0xffffU : 0U)) >> 16;
    to[i].x = static_cast<uint16_t>(is_nan ? 0x7fc0U : rounded);
  }
}

FSDP2_CLONES void philox(uint64_t key, uint64_t stream, uint32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    auto c0 = static_cast<uint32_t>(i);
    uint32_t c1 = 0;
    auto c2 = static_cast<uint32_t>(stream);
    auto c3 = static_cast<uint32_t>(stream >> 32);
    auto k0 = static_cast<uint32_t>(key);
    auto k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t product0 = uint64_t{0xD2511F53} * c0;
      const uint64_t product1 = uint64_t{0xCD9E8D57} * c2;
      c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
      c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<uint32_t>(product1);
      c3 = static_cast<uint32_t>(product0);
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    out[i] = c0;
    out[n + i] = c1;
    out[2 * n + i] = c2;
    out[3 * n + i] = c3;
  }
}

}  // namespace fsdp2::nn::simd
