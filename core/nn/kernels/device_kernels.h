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

class DeviceKernels {
 public:
  // y = w * (x * rstd), the parenthesis rounded to the dtype, over rows of w's size; rstd [rows]
  // fp32 is written.
  virtual void rms_norm_forward(const at::Tensor& x, const at::Tensor& w, double eps,
                                const at::Tensor& y, const at::Tensor& rstd) const = 0;
  // dx may be undefined.
  virtual void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                                 const at::Tensor& rstd, const at::Tensor& dx,
                                 const at::Tensor& dw) const = 0;

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

 protected:
  ~DeviceKernels() = default;
};

// Those that can work on such a tensor; null where there are none for its device or dtype, and ATen
// operators must do. They live until the process ends.
const DeviceKernels* device_kernels(const at::Tensor& tensor);

}  // namespace fsdp2::nn
