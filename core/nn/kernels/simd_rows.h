// Loops over one row of fp32 numbers, compiled for several vector widths; the one that fits the CPU
// is chosen when the library is loaded. The building blocks of cpu_kernels.
//
// Rows may alias where a line names the same variable on both sides (in place), else not.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace fsdp2::nn::simd {

void widen(const c10::BFloat16* from, float* to, int64_t n);
void widen(const c10::Half* from, float* to, int64_t n);
// Rounds to nearest even.
void narrow(const float* from, c10::BFloat16* to, int64_t n);
void narrow(const float* from, c10::Half* to, int64_t n);
// high = x rounded to bf16, low = what that leaves of x, rounded to bf16; the rounding as narrow's.
// Both return the bits of the largest |x|: above those of infinity if one is NaN, 0 if n is 0.
uint32_t split(const float* x, c10::BFloat16* high, c10::BFloat16* low, int64_t n);
uint32_t split(const float* x, c10::BFloat16* high, int64_t n);

float dot(const float* a, const float* b, int64_t n);
// y = x * factor; y may be x.
void scale(const float* x, float factor, float* y, int64_t n);
// y += x.
void add(const float* x, float* y, int64_t n);
// y = w * (x * factor); y may be x.
void scale_multiply(const float* x, float factor, const float* w, float* y, int64_t n);

// dw += dy * x * rstd; returns sum(dy * w * x).
float rms_reduce(const float* dy, const float* x, const float* w, float rstd, float* dw, int64_t n);
// dx = rstd * dy * w - along_x * x.
void rms_input_gradient(const float* dy, const float* x, const float* w, float rstd, float along_x,
                        float* dx, int64_t n);

// y = silu(gate) * up.
void silu_multiply(const float* gate, const float* up, float* y, int64_t n);
void silu_multiply_gradients(const float* dy, const float* gate, const float* up, float* dgate,
                             float* dup, int64_t n);

// (y1, y2) = (x1 cos - x2 sign sin, x2 cos + x1 sign sin) for the two halves of a head.
void rotate_head(const float* x, const float* cos, const float* sin, float sign, float* y,
                 int64_t half);

// n >= 1.
float largest(const float* x, int64_t n);
// x = e^(x - shift), 0 where that is below e^-64; returns the sum. shift is at least the largest x.
float exp_and_sum(float* x, float shift, int64_t n);

// dx: of softmax's results, then of its input. along: the sum of the results times their dx.
void softmax_gradients(const float* weights, float along, float* dx, int64_t n);

// from [rows,columns] -> to [columns,rows]. Rows lie ld apart.
void transpose(const float* from, int64_t ld_from, int64_t rows, int64_t columns, float* to,
               int64_t ld_to);

// What AdamW does to an element, in the order of its use.
struct AdamWNumbers {
  float divisor;        // of the gradient
  float coupled_decay;  // Adam's: times the parameter, added to the gradient; 0: none is
  float kept;           // 1 - lr * weight_decay: of the parameter, AdamW's decay; 1: none
  float beta1_rest;     // 1 - beta1
  float beta2;
  float beta2_rest;
  float root_of_correction2;  // sqrt(1 - beta2^step)
  float eps;
  float step_size;  // lr / (1 - beta1^step)
};
// One update; grad is left divided.
void adamw(const AdamWNumbers& numbers, float* param, float* grad, float* exp_avg,
           float* exp_avg_sq, int64_t n);

// The "lowbias32" of Chris Wellons, as hashed (core/nn/random/row_keys.h). Inlined by force: a call
// from a clone for wider vectors would keep its loop from being vectorised.
[[gnu::always_inline]] inline uint32_t hash_of(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  x ^= x >> 16;
  return x;
}
// The two numbers that tell a tensor's random bits in one step from all others.
struct HashKeys {
  uint32_t first;
  uint32_t second;
};
// Random bits of the elements from `place` on: out[i] depends on the keys and on place + i only.
void hash_places(HashKeys keys, uint64_t place, uint32_t* out, int64_t n);
// Rounds to one of the two nearest numbers, to the upper one with the chance that makes the mean of
// many roundings x: the low 16 bits of random[i] decide. What is not finite stays what it is.
void narrow_by_chance(const float* x, const uint32_t* random, c10::BFloat16* to, int64_t n);

// Random bits by the counter-based generator Philox 4x32-10: out [4 * n] depends on the key and the
// stream only.
void philox(uint64_t key, uint64_t stream, uint32_t* out, int64_t n);

}  // namespace fsdp2::nn::simd
