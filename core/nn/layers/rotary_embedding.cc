#include "core/nn/layers/rotary_embedding.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/nn/kernels/device_kernels.h"
#include "core/nn/layers/layers.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kTwoPi = 6.283185307179586;
constexpr int64_t kAxes = 3;

at::Tensor stretch(const at::Tensor& frequency, const Llama3Scaling& scaling) {
  const auto context = static_cast<double>(scaling.original_max_positions);
  const at::Tensor wavelength = frequency.reciprocal() * kTwoPi;
  const at::Tensor stretched = frequency / scaling.factor;
  const at::Tensor share = (wavelength.reciprocal() * context - scaling.low_frequency_factor) /
                           (scaling.high_frequency_factor - scaling.low_frequency_factor);
  const at::Tensor between = (1 - share) * stretched + share * frequency;
  return at::where(
      wavelength > context / scaling.low_frequency_factor, stretched,
      at::where(wavelength < context / scaling.high_frequency_factor, frequency, between));
}

at::Tensor rotated(const at::Tensor& x_in, const at::Tensor& cos, const at::Tensor& sin,
                   bool inverse) {
  const at::Tensor x = x_in.contiguous();
  at::Tensor y = at::empty_like(x);
  if (const DeviceKernels* kernels = device_kernels(x)) {
    const bool one_dtype = cos.scalar_type() == x.scalar_type() && sin.dtype() == cos.dtype();
    const at::ScalarType of_angles = one_dtype ? x.scalar_type() : at::kFloat;
    kernels->rotate(x, cos.to(of_angles).contiguous(), sin.to(of_angles).contiguous(), inverse, y);
    return y;
  }
  const int64_t half = x.size(-1) / 2;
  const at::Tensor c = cos.unsqueeze(1);  // [S,1,E/2]
  const at::Tensor s = sin.unsqueeze(1);
  const auto first = x.narrow(-1, 0, half);
  const auto second = x.narrow(-1, half, half);
  auto first_out = y.narrow(-1, 0, half);
  auto second_out = y.narrow(-1, half, half);
  at::mul_out(first_out, first, c).addcmul_(second, s, inverse ? 1 : -1);
  at::mul_out(second_out, second, c).addcmul_(first, s, inverse ? -1 : 1);
  return y;
}

// The gradient of a rotation is the rotation back, so nothing of x is saved.
struct Rotation : torch::autograd::Function<Rotation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return rotated(x, cos, sin, /*inverse=*/false);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("the rotary embedding");
    const auto saved = context->get_saved_variables();
    return {rotated(gradients[0], saved[0], saved[1], /*inverse=*/true), at::Tensor(),
            at::Tensor()};
  }
};

// The frequency, as a real number between two of them, that turns so many times within the context.
double frequency_that_turns(double times, int64_t head_dim, double theta, double context) {
  return static_cast<double>(head_dim) * std::log(context / (times * kTwoPi)) /
         (2 * std::log(theta));
}

// wavelength: theta^(2i/E), [E/2].
at::Tensor stretch_by_yarn(const at::Tensor& wavelength, int64_t head_dim, double theta,
                           const YarnScaling& scaling) {
  const auto context = static_cast<double>(scaling.original_max_positions);
  double first = frequency_that_turns(scaling.beta_fast, head_dim, theta, context);
  double last = frequency_that_turns(scaling.beta_slow, head_dim, theta, context);
  if (scaling.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(head_dim - 1));
  last += first == last ? 0.001 : 0;  // transformers' own way around a division by zero
  const at::Tensor index = at::arange(head_dim / 2, wavelength.options());
  const at::Tensor kept = 1 - ((index - first) / (last - first)).clamp(0, 1);
  const at::Tensor stretched = (wavelength * scaling.factor).reciprocal();
  return stretched * (1 - kept) + wavelength.reciprocal() * kept;
}

// angle [3,B,S,E/2] -> [B,S,E/2]: each section of the frequencies from the axis that it follows.
at::Tensor take_axis_of_each_section(const at::Tensor& angle,
                                     const std::vector<int64_t>& sections) {
  std::vector<at::Tensor> parts = angle.split_with_sizes(sections, -1);
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i] = parts[i].select(0, static_cast<int64_t>(i) % kAxes);
  }
  return at::cat(parts, -1);
}

// The same where the sections take turns: time, height, width, time, ...
at::Tensor take_axes_in_turn(const at::Tensor& angle, const std::vector<int64_t>& sections) {
  at::Tensor taken = angle.select(0, 0).clone();
  for (int64_t axis = 1; axis < kAxes; ++axis) {
    const int64_t end = sections[static_cast<size_t>(axis)] * kAxes;
    taken.slice(-1, axis, end, kAxes).copy_(angle.select(0, axis).slice(-1, axis, end, kAxes));
  }
  return taken;
}

// wavelength: theta^(2i/E), [E/2].
at::Tensor divided_by(const at::Tensor& wavelength, const std::vector<double>& factors) {
  FSDP2_CHECK(static_cast<int64_t>(factors.size()) == wavelength.numel(), Code::kInvalidArgument,
              "rotary embedding: expected {} factors, half the dim of a head, got {}",
              wavelength.numel(), factors.size());
  return (at::tensor(factors, wavelength.options()) * wavelength).reciprocal();
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(int64_t head_dim, RotaryOptions options)
    : scaling_(std::move(options.scaling)),
      theta_(options.theta),
      sections_(std::move(options.sections)),
      interleaves_sections_(options.interleaves_sections) {
  FSDP2_CHECK(head_dim > 0 && head_dim % 2 == 0, Code::kInvalidArgument,
              "rotary embedding: expected an even dim of a head, got {}", head_dim);
  FSDP2_CHECK(sections_.empty() ||
                  std::accumulate(sections_.begin(), sections_.end(), int64_t{0}) == head_dim / 2,
              Code::kInvalidArgument,
              "rotary embedding: expected sections of {} frequencies in all, got {}", head_dim / 2,
              fmt::join(sections_, " + "));
  FSDP2_CHECK(!interleaves_sections_ || static_cast<int64_t>(sections_.size()) == kAxes,
              Code::kInvalidArgument,
              "rotary embedding: expected three sections that take turns, got {}",
              sections_.size());
  exponent_ = at::arange(0, head_dim, 2, at::device(at::kCPU).dtype(at::kFloat)) / head_dim;
  const at::Tensor wavelength = at::pow(theta_, exponent_);
  inverse_frequency_ = wavelength.reciprocal();
  if (const auto* linear = std::get_if<LinearScaling>(&scaling_)) {
    inverse_frequency_.div_(linear->factor);
  } else if (const auto* llama3 = std::get_if<Llama3Scaling>(&scaling_)) {
    inverse_frequency_ = stretch(inverse_frequency_, *llama3);
  } else if (const auto* yarn = std::get_if<YarnScaling>(&scaling_)) {
    inverse_frequency_ = stretch_by_yarn(wavelength, head_dim, theta_, *yarn);
    attention_factor_ = yarn->attention_factor;
  } else if (const auto* longrope = std::get_if<LongRopeScaling>(&scaling_)) {
    inverse_frequency_ = divided_by(wavelength, longrope->short_factors);
    long_inverse_frequency_ = divided_by(wavelength, longrope->long_factors);
    attention_factor_ = longrope->attention_factor;
  }
}

at::Tensor RotaryEmbedding::inverse_frequency(const at::Tensor& length) {
  inverse_frequency_ = inverse_frequency_.to(length.device());
  // Lengths are compared on their device, for which the host would wait.
  if (const auto* dynamic = std::get_if<DynamicScaling>(&scaling_)) {
    exponent_ = exponent_.to(length.device());
    const auto context = static_cast<double>(dynamic->original_max_positions);
    const at::Tensor times = length.clamp_min(context) / context;
    const auto dim = static_cast<double>(2 * exponent_.numel());
    const at::Tensor base =
        (times * dynamic->factor - (dynamic->factor - 1)).pow(dim / (dim - 2)) * theta_;
    return at::pow(base.to(at::kFloat), exponent_).reciprocal();
  }
  if (const auto* longrope = std::get_if<LongRopeScaling>(&scaling_)) {
    long_inverse_frequency_ = long_inverse_frequency_.to(length.device());
    return at::where(length > longrope->original_max_positions, long_inverse_frequency_,
                     inverse_frequency_);
  }
  return inverse_frequency_;
}

RotaryEmbedding::Angles RotaryEmbedding::cos_sin_of(const at::Tensor& angle,
                                                    const at::Tensor& like) const {
  at::Tensor cos = at::cos(angle);
  at::Tensor sin = at::sin(angle);
  if (attention_factor_ != 1) {
    cos.mul_(attention_factor_);
    sin.mul_(attention_factor_);
  }
  return {cos.to(like.scalar_type()), sin.to(like.scalar_type())};
}

RotaryEmbedding::RotaryEmbedding(int64_t head_dim, double theta, RotaryScaling scaling)
    : RotaryEmbedding(head_dim, RotaryOptions{theta, std::move(scaling), {}, false}) {}

RotaryEmbedding::Angles RotaryEmbedding::cos_sin(int64_t length, const at::Tensor& like) {
  const c10::AutoGradMode no_grad(false);
  const at::TensorOptions on_device = at::device(like.device());
  const at::Tensor positions = at::arange(length, on_device.dtype(at::kFloat));
  const at::Tensor frequency =
      inverse_frequency(at::full({}, static_cast<double>(length), on_device.dtype(at::kDouble)));
  return cos_sin_of(at::outer(positions, frequency), like);
}

RotaryEmbedding::Angles RotaryEmbedding::cos_sin(const at::Tensor& positions,
                                                 const at::Tensor& like) {
  const bool has_axes = positions.dim() == 3;
  FSDP2_CHECK(at::isIntegralType(positions.scalar_type(), /*includeBool=*/false) &&
                  (positions.dim() == 2 || (has_axes && positions.size(0) == kAxes)),
              Code::kInvalidArgument,
              "positions: expected integers [batch, sequence] or [3, batch, sequence], got {} [{}]",
              c10::toString(positions.scalar_type()), fmt::join(positions.sizes(), ", "));
  FSDP2_CHECK(
      !has_axes || !sections_.empty(), Code::kInvalidArgument,
      "positions: expected [batch, sequence], got three axes for a rotary embedding without "
      "sections (\"mrope_section\")");
  const c10::AutoGradMode no_grad(false);
  const at::Tensor wide = positions.to(like.device(), at::kFloat);
  const at::Tensor frequency = inverse_frequency(wide.max().to(at::kDouble) + 1);
  const at::Tensor angle = wide.unsqueeze(-1) * frequency;
  if (!has_axes) {
    return cos_sin_of(angle, like);
  }
  return cos_sin_of(interleaves_sections_ ? take_axes_in_turn(angle, sections_)
                                          : take_axis_of_each_section(angle, sections_),
                    like);
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const bool by_row = cos.dim() == 3;  // each row of the batch has angles of its own
  FSDP2_CHECK(
      x.dim() == 4 && (by_row ? cos.size(0) == x.size(0) : cos.dim() == 2) &&
          cos.size(-2) == x.size(1) && 2 * cos.size(-1) <= x.size(3) && sin.sizes() == cos.sizes(),
      Code::kInvalidArgument,
      "rotate: expected x [B,S,H,E] with cos and sin [S,E/2] or [B,S,E/2], or fewer angles, got {} "
      "dims of x and {} angles",
      x.dim(), cos.numel());
  FSDP2_CHECK(cos.device() == x.device() && sin.device() == x.device(), Code::kInvalidArgument,
              "rotate: expected cos and sin on x's device, {}, found them on {} and {}",
              x.device().str(), cos.device().str(), sin.device().str());
  if (const int64_t rotated_dims = 2 * cos.size(-1); rotated_dims < x.size(3)) {
    const std::vector<at::Tensor> parts =
        x.split_with_sizes({rotated_dims, x.size(3) - rotated_dims}, -1);
    return at::cat({rotate(parts[0], cos, sin), parts[1]}, -1);
  }
  if (!by_row) {
    return Rotation::apply(x, cos, sin);
  }
  const int64_t tokens = x.size(0) * x.size(1);
  const at::Tensor one_row = x.reshape({1, tokens, x.size(2), x.size(3)});
  return Rotation::apply(one_row, cos.flatten(0, 1), sin.flatten(0, 1)).view(x.sizes());
}

}  // namespace fsdp2::nn
