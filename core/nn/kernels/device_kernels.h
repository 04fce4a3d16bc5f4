// The fused loops of the layers, on whichever device tensors are: one pass over memory each, where
// the same expression out of ATen operators takes four to eight. The host's are cpu_kernels; those
// of other devices come with their plug-in.
//
// Tensors are contiguous, on one device and of one dtype (fp32, bf16 or fp16) unless a line says
// otherwise. Arithmetic is fp32 inside, and the same call gives the same bits on the same device.
// Work goes to the device's current stream, and the host waits for none of it. Nothing here records
// gradients.
#pragma once

#include <ATen/core/Tensor.h>

namespace fsdp2::nn {

// What a norm takes is x or, where both of these are defined, x + addend, which is written to sum.
struct Residual {
  at::Tensor addend;
  at::Tensor sum;
};

class DeviceKernels {
 public:
  // y = w * (x * rstd), the parenthesis rounded to the dtype, over rows of w's size; rstd [rows]
  // fp32 is written.
  virtual void rms_norm_forward(const at::Tensor& x, const Residual& residual, const at::Tensor& w,
                                double eps, const at::Tensor& y, const at::Tensor& rstd) const = 0;
  // x: what was normalized, the sum where there was one. dx may be undefined; dx_besides, unless it
  // is undefined, is added to it.
  virtual void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                                 const at::Tensor& rstd, const at::Tensor& dx_besides,
                                 const at::Tensor& dx, const at::Tensor& dw) const = 0;

  // y = (x - mean) * rstd * w + b over rows of w's size; mean and rstd [rows] fp32 are written.
  virtual void layer_norm_forward(const at::Tensor& x, const Residual& residual,
                                  const at::Tensor& w, const at::Tensor& b, double eps,
                                  const at::Tensor& y, const at::Tensor& mean,
                                  const at::Tensor& rstd) const = 0;
  // As rms_norm_backward.
  virtual void layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                                   const at::Tensor& mean, const at::Tensor& rstd,
                                   const at::Tensor& dx_besides, const at::Tensor& dx,
                                   const at::Tensor& dw, const at::Tensor& db) const = 0;

  // sums [n] of the columns of x [rows,n].
  virtual void column_sums(const at::Tensor& x, const at::Tensor& sums) const = 0;

  // y = silu(gate) * up.
  virtual void silu_multiply_forward(const at::Tensor& gate, const at::Tensor& up,
                                     const at::Tensor& y) const = 0;
  virtual void silu_multiply_backward(const at::Tensor& dy, const at::Tensor& gate,
                                      const at::Tensor& up, const at::Tensor& dgate,
                                      const at::Tensor& dup) const = 0;

  // Rotates the halves of each head of x [B,S,H,D] by the angles with these cos and sin [S,D/2], of
  // x's dtype or fp32; backwards if `inverse`.
  virtual void rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                      bool inverse, const at::Tensor& y) const = 0;

  // Sum over the rows of logits [N,V] of logsumexp(row) - row[label], a scalar in fp64 on their
  // device; labels [N] int64. With want_gradient the logits become
  // scale * (softmax(row) - onehot(label)). scale_of_row [N] fp32, unless it is undefined, has
  // another scale for each row, and 0 for rows that do not count: nothing of these is read, neither
  // logits nor label, and their gradient is 0.
  // A label outside the vocabulary: kInvalidArgument on the host, where the logits may be anything
  // then; elsewhere the loss and the row's gradient are NaN.
  virtual at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                                   bool want_gradient, double scale,
                                   const at::Tensor& scale_of_row) const = 0;

  // Sum of the squares of all elements, a scalar in fp64 on their device; each tensor may be of any
  // of the dtypes, and empty. There is one at least.
  virtual at::Tensor square_sum(at::TensorList tensors) const = 0;

  // to[i] = from[i], rounded to its dtype; each tensor is [rows,n] or [n] and of any of the dtypes,
  // and its rows are contiguous and may lie apart. None of `to` overlaps another tensor.
  virtual void copy_each(at::TensorList from, at::TensorList to) const = 0;

  // to = factor * from, rounded to its dtype; both may be of any of the dtypes, and be one tensor.
  // factor: a scalar in fp32 on their device.
  virtual void scale(const at::Tensor& from, const at::Tensor& factor,
                     const at::Tensor& to) const = 0;

 protected:
  ~DeviceKernels() = default;
};

// Those that can work on such a tensor; null where there are none for its device or dtype, and ATen
// operators must do. They live until the process ends.
const DeviceKernels* device_kernels(const at::Tensor& tensor);

}  // namespace fsdp2::nn
