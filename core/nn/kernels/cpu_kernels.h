// Fused elementwise loops of the layers on CPUs: one pass over memory each, where the same
// expression out of ATen operators takes four to eight. They run on the calling thread's OpenMP
// threads like ATen's own, and give the same bits for the same number of threads.
//
// Tensors are contiguous, on the CPU and of one dtype (fp32, bf16 or fp16) unless a line says
// otherwise. Arithmetic is fp32 inside. Nothing here records gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fsdp2::nn::cpu_kernels {

// True for a tensor that these loops can work on (after `contiguous()`).
bool supports(const at::Tensor& tensor);

// y = w * (x * rstd), the parenthesis rounded to the dtype; rstd [rows] fp32 is written.
void rms_norm_forward(const at::Tensor& x, const at::Tensor& w, double eps, const at::Tensor& y,
                      const at::Tensor& rstd);
// dx may be undefined. dw [D] fp32 is written.
void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                       const at::Tensor& rstd, const at::Tensor& dx, const at::Tensor& dw);

// y = silu(gate) * up.
void silu_multiply_forward(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& y);
void silu_multiply_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                            const at::Tensor& dgate, const at::Tensor& dup);

// Rotates the halves of each head of x [B,S,H,D] by the angles with these cos and sin
// [S,D/2] (fp32); backwards if `inverse`.
void rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool inverse,
            const at::Tensor& y);

// Sums of rows that lie in several tensors: row i of the parts [...,D], taken as one, has the
// number i. sums[t] = sum over k of factors[t][k] * row places[t][k]. places [T,K] int64, not
// checked; factors [T,K] fp32, or undefined: 1.
void sum_rows(at::TensorList parts, const at::Tensor& places, const at::Tensor& factors,
              const at::Tensor& sums);
// Its gradients, if each row has one place: drows [n,D], of the parts taken as one, and dfactors
// [T,K] fp32.
void sum_rows_backward(const at::Tensor& dsums, at::TensorList parts, const at::Tensor& places,
                       const at::Tensor& factors, const at::Tensor& drows,
                       const at::Tensor& dfactors);

// Sum over the rows of logits [N,V] of logsumexp(row) - row[label]; labels [N] int64. With
// want_gradient the logits become scale * (softmax(row) - onehot(label)). scale_of_row [N] fp32,
// unless it is undefined, has another scale for each row, and 0 for rows that do not count: nothing
// of these is read, and their gradient is 0. Error: kInvalidArgument for a label outside the
// vocabulary, also where another thread has written it meanwhile; the logits may be anything then.
double cross_entropy(const at::Tensor& logits, const at::Tensor& labels, bool want_gradient,
                     double scale, const at::Tensor& scale_of_row = {});

// Sum of the squares of all elements; each tensor may be of any of the dtypes, and empty. Squares
// above fp32's range are infinite.
double square_sum(at::TensorList tensors);

}  // namespace fsdp2::nn::cpu_kernels
