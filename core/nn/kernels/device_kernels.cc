#include "core/nn/kernels/device_kernels.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "core/device/plugin.h"
#include "core/nn/kernels/cpu_kernels.h"
#include "core/nn/kernels/meta_kernels.h"

namespace fsdp2::nn {

namespace {

class CpuKernels final : public DeviceKernels {
 public:
  void rms_norm_forward(const at::Tensor& x, const Residual& residual, const at::Tensor& w,
                        double eps, const at::Tensor& y, const at::Tensor& rstd) const override {
    cpu_kernels::rms_norm_forward(summed(x, residual), w, eps, y, rstd);
  }

  void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                         const at::Tensor& rstd, const at::Tensor& dx_besides, const at::Tensor& dx,
                         const at::Tensor& dw) const override {
    const at::Tensor wide_dw =
        dw.scalar_type() == at::kFloat ? dw : at::empty(dw.sizes(), dw.options().dtype(at::kFloat));
    cpu_kernels::rms_norm_backward(dy, x, w, rstd, dx, wide_dw);
    if (!wide_dw.is_same(dw)) {
      dw.copy_(wide_dw);
    }
    add_besides(dx, dx_besides);
  }

  void layer_norm_forward(const at::Tensor& x, const Residual& residual, const at::Tensor& w,
                          const at::Tensor& b, double eps, const at::Tensor& y,
                          const at::Tensor& mean, const at::Tensor& rstd) const override {
    const auto [normed, row_mean, row_rstd] =
        at::native_layer_norm(summed(x, residual), w.sizes(), w, b, eps);
    y.copy_(normed);
    mean.copy_(row_mean.view_as(mean));
    rstd.copy_(row_rstd.view_as(rstd));
  }

  void layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& mean, const at::Tensor& rstd,
                           const at::Tensor& dx_besides, const at::Tensor& dx, const at::Tensor& dw,
                           const at::Tensor& db) const override {
    const int64_t n = w.numel();
    const at::Tensor rows = x.view({-1, n});
    const auto [x_gradient, w_gradient, b_gradient] = at::native_layer_norm_backward(
        dy.view({-1, n}), rows, {n}, mean.to(x.scalar_type()).view({-1, 1}),
        rstd.to(x.scalar_type()).view({-1, 1}), w, w, {dx.defined(), true, true});
    if (dx.defined()) {
      dx.copy_(x_gradient.view_as(dx));
    }
    dw.copy_(w_gradient);
    db.copy_(b_gradient);
    add_besides(dx, dx_besides);
  }

  void column_sums(const at::Tensor& x, const at::Tensor& sums) const override {
    sums.copy_(x.sum(0));
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

  void scale(const at::Tensor& from, const at::Tensor& factor,
             const at::Tensor& to) const override {
    to.copy_(from.to(at::kFloat).mul(factor));
  }

 private:
  static at::Tensor summed(const at::Tensor& x, const Residual& residual) {
    if (!residual.addend.defined()) {
      return x;
    }
    at::Tensor sum = residual.sum;
    return at::add_out(sum, x, residual.addend);
  }

  static void add_besides(const at::Tensor& dx, const at::Tensor& dx_besides) {
    if (dx.defined() && dx_besides.defined()) {
      dx.add_(dx_besides);
    }
  }

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
