// What the makers of layers share.
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/stock/layer_makers.h"

namespace fsdp2::nn {

namespace {

// Inside a container no one else has looked at what a module is given.
void check_tensors(const Module& module, const InputCount& takes, const Values& inputs) {
  FSDP2_CHECK(inputs.size() >= takes.required && inputs.size() <= takes.most,
              Code::kInvalidArgument, "{}: expected {} to {} inputs, found {}", module.kind(),
              takes.required, takes.most, inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    FSDP2_CHECK(inputs[i].isTensor() || (i >= takes.required && inputs[i].isNone()),
                Code::kInvalidArgument, "{}: expected a tensor as input {}, found a {}",
                module.kind(), i, inputs[i].tagKind());
  }
}

}  // namespace

Layer new_layer(const std::string& kind, const LayerSettings& settings, InputCount inputs,
                CustomModule::Forward forward) {
  return std::make_shared<CustomModule>(
      kind,
      CustomModuleOptions{settings.seed, settings.title_of_parameter, inputs, /*is_stock=*/true},
      [inputs, forward = std::move(forward)](CustomModule& self, Values given) {
        check_tensors(self, inputs, given);
        return forward(self, std::move(given));
      });
}

Layer new_function_layer(const std::string& kind, const LayerSettings& settings,
                         std::function<at::Tensor(const at::Tensor&)> function) {
  return new_layer(kind, settings, {1, 1},
                   [function = std::move(function)](CustomModule&, const Values& inputs) {
                     return c10::IValue(function(inputs[0].toTensor()));
                   });
}

Layer new_linear(const LayerSettings& settings, int64_t in, int64_t out, bool has_bias) {
  Layer layer = new_layer("Linear", settings, {1, 1}, [](CustomModule& self, const Values& inputs) {
    return c10::IValue(linear_product(inputs[0].toTensor(), self.own_parameter("weight"),
                                      self.own_parameter("bias")));
  });
  layer->add_parameter("weight", {out, in}, settings.dtype,
                       uniform_by_fan_in(static_cast<double>(in)));
  if (has_bias) {
    layer->add_parameter("bias", {out}, settings.dtype, uniform_by_fan_in(static_cast<double>(in)));
  }
  return layer;
}

ParameterInit uniform(double bound) {
  ParameterInit init;
  init.kind = ParameterInit::Kind::kUniform;
  init.bound = bound;
  return init;
}

ParameterInit uniform_by_fan_in(double fan_in) { return uniform(1 / std::sqrt(fan_in)); }

ParameterInit zeros() {
  ParameterInit init;
  init.kind = ParameterInit::Kind::kZeros;
  return init;
}

ParameterInit ones() {
  ParameterInit init;
  init.kind = ParameterInit::Kind::kOnes;
  return init;
}

}  // namespace fsdp2::nn
