#include "core/nn/kernels/device_kernels.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "core/device/plugin.h"
#include "core/nn/kernels/cpu_kernels.h"
#include "core/nn/kernels/meta_kernels.h"

namespace fsdp2::nn {

namespace {

class CpuKernels final : public DeviceKernels {
 public:
  void rms_norm_forward(const at::Tensor& x, const at::Tensor& w, double eps, const at::Tensor& y,
                        const at::Tensor& rstd) const override {
    cpu_kernels::rms_norm_forward(x, w, eps, y, rstd);
  }

  void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                         const at::Tensor& rstd, const at::Tensor& dx,
                         const at::Tensor& dw) const override {
    const at::Tensor wide_dw =
        dw.scalar_type() == at::kFloat ? dw : at::empty(dw.sizes(), dw.options().dtype(at::kFloat));
    cpu_kernels::rms_norm_backward(dy, x, w, rstd, dx, wide_dw);
    if (!wide_dw.is_same(dw)) {
      dw.copy_(wide_dw);
    }
  }

  void silu_multiply_forward(const at::Tensor& gate, const at::Tensor& up,
                             const at::Tensor& y) const override {
    cpu_kernels::silu_multiply_forward(gate, up, y);
  }

  void silu_multiply_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                              const at::Tensor& dgate, const at::Tensor& dup) const override {
    cpu_kernels::silu_multiply_backward(dy, gate, up, dgate, dup);
  }

  void rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool inverse,
              const at::Tensor& y) const override {
    cpu_kernels::rotate(x, cos.to(at::kFloat), sin.to(at::kFloat), inverse, y);
  }

  at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, bool want_gradient,
                           double scale, const at::Tensor& scale_of_row) const override {
    const double loss =
        cpu_kernels::cross_entropy(logits, labels, want_gradient, scale, scale_of_row);
    return on_host(loss);
  }

  at::Tensor square_sum(at::TensorList tensors) const override {
    return on_host(cpu_kernels::square_sum(tensors));
  }

  void copy_each(at::TensorList from, at::TensorList to) const override {
    for (size_t i = 0; i < from.size(); ++i) {
      to[i].copy_(from[i]);
    }
  }

 private:
  static at::Tensor on_host(double number) {
    return at::full({}, number, at::device(at::kCPU).dtype(at::kDouble));
  }
};

bool has_kernels(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

}  // namespace

const DeviceKernels* device_kernels(const at::Tensor& tensor) {
  static const CpuKernels cpu;
  if (!has_kernels(tensor.scalar_type())) {
    return nullptr;
  }
  if (tensor.is_cpu()) {
    return &cpu;
  }
  if (tensor.is_meta()) {
    return &meta_kernels();
  }
  const DevicePlugin* plugin = find_device_plugin(tensor.device().type());
  return plugin != nullptr ? plugin->kernels() : nullptr;
}

}  // namespace fsdp2::nn
