// Products of fp32 matrices by a CPU's bf16 units, which sum in fp32. Each operand is a sum of bf16
// matrices: of one, itself rounded, or of two, where low is what high leaves of it:
//
//   A B = high(A) high(B)                                       one part, PyTorch's "medium"
//   A B = low(A) high(B) + high(A) low(B) + high(A) high(B)     two parts, its "high"
//
// Two parts leave out 2^-15 of |A| |B| at most, element by element, and of random numbers about an
// eighth of that; one part, 2^-7.
// plain_bf16_parts.h spells the same out in LibTorch's operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fsdp2::nn {

struct Bf16Parts {
  at::Tensor high;             // contiguous
  at::Tensor low;              // undefined: one part
  bool is_transposed = false;  // they are those of the matrix's transpose
  float largest = 0;           // |element| of the matrix; NaN if one is

  int64_t rows() const { return high.size(is_transposed ? 1 : 0); }
  int64_t columns() const { return high.size(is_transposed ? 0 : 1); }
};

// matrix [rows,columns]: fp32, on the host, any strides. parts: 1 or 2.
Bf16Parts split_in_bf16(const at::Tensor& matrix, int parts);

// Whether a product from parts is as accurate as said above: no sum can overflow, nor is anything
// that counts so small that bf16 units take it for 0. Not so where an element is not finite: fp32
// products of infinities, which give infinities, would become inf - inf.
bool parts_can_multiply(const Bf16Parts& a, const Bf16Parts& b);

// sum [m,n] = beta * sum + a[m,k] b[k,n], of the same number of parts; with beta 0 sum's contents
// do not matter. sum: fp32 with contiguous rows. No size may be above an int's.
void add_parts_product(const at::Tensor& sum, const Bf16Parts& a, const Bf16Parts& b, double beta);

}  // namespace fsdp2::nn
