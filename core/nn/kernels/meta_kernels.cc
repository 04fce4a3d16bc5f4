#include "core/nn/kernels/meta_kernels.h"

#include <ATen/ops/empty.h>

namespace fsdp2::nn {

namespace {

class MetaKernels final : public DeviceKernels {
 public:
  void rms_norm_forward(const at::Tensor& /*x*/, const Residual& /*residual*/,
                        const at::Tensor& /*w*/, double /*eps*/, const at::Tensor& /*y*/,
                        const at::Tensor& /*rstd*/) const override {}

  void rms_norm_backward(const at::Tensor& /*dy*/, const at::Tensor& /*x*/, const at::Tensor& /*w*/,
                         const at::Tensor& /*rstd*/, const at::Tensor& /*dx_besides*/,
                         const at::Tensor& /*dx*/, const at::Tensor& /*dw*/) const override {}

  void layer_norm_forward(const at::Tensor& /*x*/, const Residual& /*residual*/,
                          const at::Tensor& /*w*/, const at::Tensor& /*b*/, double /*eps*/,
                          const at::Tensor& /*y*/, const at::Tensor& /*mean*/,
                          const at::Tensor& /*rstd*/) const override {}

  void layer_norm_backward(const at::Tensor& /*dy*/, const at::Tensor& /*x*/,
                           const at::Tensor& /*w*/, const at::Tensor& /*mean*/,
                           const at::Tensor& /*rstd*/, const at::Tensor& /*dx_besides*/,
                           const at::Tensor& /*dx*/, const at::Tensor& /*dw*/,
                           const at::Tensor& /*db*/) const override {}

  void column_sums(const at::Tensor& /*x*/, const at::Tensor& /*sums*/) const override {}

  void silu_multiply_forward(const at::Tensor& /*gate*/, const at::Tensor& /*up*/,
                             const at::Tensor& /*y*/) const override {}

  void silu_multiply_backward(const at::Tensor& /*dy*/, const at::Tensor& /*gate*/,
                              const at::Tensor& /*up*/, const at::Tensor& /*dgate*/,
                              const at::Tensor& /*dup*/) const override {}

  void rotate(const at::Tensor& /*x*/, const at::Tensor& /*cos*/, const at::Tensor& /*sin*/,
              bool /*inverse*/, const at::Tensor& /*y*/) const override {}

  at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& /*labels*/,
                           bool /*want_gradient*/, double /*scale*/,
                           const at::Tensor& /*scale_of_row*/) const override {
    return at::empty({}, logits.options().dtype(at::kDouble));
  }

  at::Tensor square_sum(at::TensorList tensors) const override {
    return at::empty({}, tensors.front().options().dtype(at::kDouble));
  }

  void copy_each(at::TensorList /*from*/, at::TensorList /*to*/) const override {}

  void scale(const at::Tensor& /*from*/, const at::Tensor& /*factor*/,
             const at::Tensor& /*to*/) const override {}
};

}  // namespace

const DeviceKernels& meta_kernels() {
  static const MetaKernels kernels;
  return kernels;
}

}  // namespace fsdp2::nn
