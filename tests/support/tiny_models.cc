#include "tests/support/tiny_models.h"

#include <ATen/CPUGeneratorImpl.h>

namespace fsdp2 {

TinyLinear::TinyLinear(int64_t in, int64_t out, bool with_bias) : nn::Module("TinyLinear") {
  weight = register_parameter("weight", at::zeros({out, in}));
  if (with_bias) {
    bias = register_parameter("bias", at::zeros({out}));
  }
}

void TinyLinear::tie_weight(const at::Tensor& other) {
  TORCH_CHECK(other.sizes() == weight.sizes(), "a tie needs equal shapes");
  parameters_["weight"] = other;
  weight = other;
}

c10::IValue TinyLinear::forward(nn::Values inputs) {
  return at::linear(inputs[0].toTensor(), weight, bias);
}

TinyBlock::TinyBlock(int64_t width, int64_t inner) : nn::Module("TinyBlock") {
  in = register_module("in", std::make_shared<TinyLinear>(width, inner));
  out = register_module("out", std::make_shared<TinyLinear>(inner, width));
}

c10::IValue TinyBlock::forward(nn::Values inputs) {
  const at::Tensor x = inputs[0].toTensor();
  return x + (*out)((*in)(x).relu());
}

TinyStack::TinyStack(const TinyStackOptions& options) : nn::Module("TinyStack") {
  embedding = register_parameter("embedding", at::zeros({options.width, options.width}));
  scale = register_parameter("scale", at::zeros({options.width}));
  for (int64_t i = 0; i < options.blocks; ++i) {
    blocks.push_back(register_module("block" + std::to_string(i),
                                     std::make_shared<TinyBlock>(options.width, options.inner)));
  }
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::detail::createCPUGenerator(17);
  for (at::Tensor& parameter : parameters()) {
    parameter.normal_(0.0, 0.4, generator);
  }
  if (options.frozen_bias) {
    for (const auto& block : blocks) {
      block->in->bias.set_requires_grad(false);
    }
  }
  if (options.frozen_block) {
    for (at::Tensor& parameter : blocks.at(1)->parameters()) {
      parameter.set_requires_grad(false);
    }
  }
  if (options.tied) {
    blocks.back()->out->tie_weight(embedding);
  }
}

c10::IValue TinyStack::forward(nn::Values inputs) {
  at::Tensor x = inputs[0].toTensor();
  x = x + at::matmul(x, embedding);
  if (inputs.size() > 1) {
    for (const int64_t index : inputs[1].toIntVector()) {
      x = (*blocks.at(static_cast<size_t>(index)))(x);
    }
  } else {
    for (const auto& block : blocks) {
      x = (*block)(x);
    }
  }
  return x * scale;
}

}  // namespace fsdp2
