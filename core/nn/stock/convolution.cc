#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>

#include <functional>
#include <numeric>
#include <vector>

#include "core/base/error.h"
#include "core/nn/stock/layer_makers.h"

namespace fsdp2::nn {

namespace {

struct Convolution {
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> dilation;
  int64_t groups;

  at::Tensor operator()(const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& bias) const {
    return stride.size() == 1 ? at::conv1d(x, weight, bias, stride, padding, dilation, groups)
                              : at::conv2d(x, weight, bias, stride, padding, dilation, groups);
  }
};

Layer make_convolution(const LayerOptions& options, const LayerSettings& settings, size_t dims) {
  const int64_t in = options.size("in_channels");
  const int64_t out = options.size("out_channels");
  const std::vector<int64_t> kernel = options.integers("kernel_size", dims, 1);
  const Convolution convolution{
      options.integers("stride", dims, 1, 1), options.integers("padding", dims, 0, 0),
      options.integers("dilation", dims, 1, 1), options.size("groups", 1)};
  const bool has_bias = options.flag("bias", true);
  FSDP2_CHECK(in % convolution.groups == 0 && out % convolution.groups == 0, Code::kInvalidArgument,
              "{}: \"groups\" should divide in_channels and out_channels, found {} for {} and {}",
              options.kind(), convolution.groups, in, out);
  Layer layer = new_layer(
      options.kind(), settings, {1, 1}, [convolution](CustomModule& self, const Values& inputs) {
        return c10::IValue(convolution(inputs[0].toTensor(), self.own_parameter("weight"),
                                       self.own_parameter("bias")));
      });
  std::vector<int64_t> shape = {out, in / convolution.groups};
  shape.insert(shape.end(), kernel.begin(), kernel.end());
  const double fan_in =
      std::accumulate(shape.begin() + 1, shape.end(), 1.0, std::multiplies<double>());
  layer->add_parameter("weight", shape, settings.dtype, uniform_by_fan_in(fan_in));
  if (has_bias) {
    layer->add_parameter("bias", {out}, settings.dtype, uniform_by_fan_in(fan_in));
  }
  return layer;
}

}  // namespace

Layer make_conv1d(const LayerOptions& options, const LayerSettings& settings) {
  return make_convolution(options, settings, 1);
}

Layer make_conv2d(const LayerOptions& options, const LayerSettings& settings) {
  return make_convolution(options, settings, 2);
}

}  // namespace fsdp2::nn
