#include "core/nn/kernels/linear_product.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/nn/kernels/cpu_vectors.h"
#include "core/nn/kernels/matmul_precision.h"
#include "core/nn/kernels/product_race.h"
#include "core/nn/kernels/shared_input.h"
#include "core/nn/kernels/widened_product.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Below this many multiplications oneDNN's cost of a call (about 10 us) outweighs its speed.
constexpr int64_t kSmallProduct = int64_t{1} << 20;

std::atomic<ProductEngine> chosen_engine{ProductEngine::kAuto};

// LibTorch's oneDNN linear layer: a [m,k] b [n,k]^T + bias. Takes transposed operands without a
// copy of ours, has no gradient formula.
at::Tensor onednn_linear(const at::Tensor& a, const at::Tensor& b,
                         const std::optional<at::Tensor>& bias = std::nullopt) {
  using Signature = at::Tensor(
      const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::string_view,
      c10::List<std::optional<at::Scalar>>, std::optional<std::string_view>);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
                             .typed<Signature>();
  return op.call(a, b, bias, "none", c10::List<std::optional<at::Scalar>>(), std::nullopt);
}

bool onednn_is_there() {
  return at::globalContext().hasMKLDNN() &&
         c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""}).has_value();
}

ProductSpeed measure() {
  const ProductWay mkl = [](const auto& a, const auto& b) { return at::mm(a, b.t()); };
  if (!onednn_is_there()) {
    return {race_products({mkl})[0], {}};
  }
  const auto speeds =
      race_products({mkl, [](const auto& a, const auto& b) { return onednn_linear(a, b); }});
  return {speeds[0], speeds[1]};
}

ProductEngine engine_of_auto(ProductKind kind) {
  if (!product_engine_is_measured()) {
    return ProductEngine::kMkl;
  }
  static const bool onednn_is_usual = onednn_has_wider_vectors();
  return faster_engine(kind, product_speed(), onednn_is_usual);
}

std::string describe_measured() {
  const ProductEngine rows = engine_of_auto(ProductKind::kRows);
  const ProductEngine weights = engine_of_auto(ProductKind::kWeights);
  return rows == weights
             ? to_string(rows)
             : fmt::format("{}, {} for gradients of weights", to_string(rows), to_string(weights));
}

bool is_small(int64_t m, int64_t n, int64_t k) {
  int64_t multiplications = 0;
  return __builtin_mul_overflow(m * n, k, &multiplications) ? false
                                                            : multiplications < kSmallProduct;
}

bool are_large(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype, int64_t m, int64_t n,
               int64_t k) {
  return a.scalar_type() == dtype && b.scalar_type() == dtype && !is_small(m, n, k);
}

bool is_large_on_host(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype, int64_t m,
                      int64_t n, int64_t k) {
  return a.is_cpu() && b.is_cpu() && are_large(a, b, dtype, m, n, k);
}

bool use_onednn(ProductKind kind, const at::Tensor& a, const at::Tensor& b, int64_t m, int64_t n,
                int64_t k) {
  return is_large_on_host(a, b, at::kFloat, m, n, k) &&
         product_engine(kind) == ProductEngine::kOneDnn &&
         (product_engine_is_set() || is_worth_onednn(kind, product_speed(), m));
}

// A weight's gradient is dy^T x, so that its left operand is the transpose of what is in memory.
ProductKind kind_by_left(const at::Tensor& a) {
  return a.stride(1) == 1 ? ProductKind::kRows : ProductKind::kWeights;
}

// On meta, too, so that plans count the copies.
bool use_widened(const at::Tensor& a, const at::Tensor& b, int64_t m, int64_t n, int64_t k) {
  return (a.is_cpu() || a.is_meta()) && a.device() == b.device() &&
         are_large(a, b, at::kBFloat16, m, n, k) && is_for_widening(m, n, k) &&
         bf16_products_are_widened_on(a.device());
}

// The number of bf16 parts that a product is to take; 0: none.
int parts_for(const at::Tensor& a, const at::Tensor& b, int64_t m, int64_t n, int64_t k) {
  return is_large_on_host(a, b, at::kFloat, m, n, k) && is_for_parts(m, n, k) ? product_parts() : 0;
}

// Nothing if bf16 parts cannot stand for these numbers.
using MatrixParts = std::optional<std::pair<Bf16Parts, Bf16Parts>>;
MatrixParts parts_of_both(const ProductOperand& a, const ProductOperand& b, int number) {
  auto parts = std::make_pair(a.parts(number), b.parts(number));
  return parts_can_multiply(parts.first, parts.second) ? MatrixParts(std::move(parts))
                                                       : std::nullopt;
}

at::Tensor strict_linear(const at::Tensor& x, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias) {
  return use_onednn(ProductKind::kRows, x, weight, x.numel() / weight.size(1), weight.size(0),
                    weight.size(1))
             ? onednn_linear(x, weight, bias)
             : at::linear(x, weight, bias);
}

// Records no gradient; the sizes fit each other.
at::Tensor host_linear(const at::Tensor& x, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias) {
  const int64_t in = weight.size(1);
  const int64_t out = weight.size(0);
  const int64_t rows = x.numel() / in;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = out;
  if (use_widened(x, weight, rows, out, in)) {
    return widened_product_nt(x.reshape({rows, in}), weight, bias.value_or(at::Tensor()))
        .view(sizes);
  }
  const int number = parts_for(x, weight, rows, out, in);
  const auto parts = number == 0
                         ? std::nullopt
                         : parts_of_both(x.reshape({rows, in}), ProductOperand(weight).t(), number);
  if (!parts) {
    return strict_linear(x, weight, bias);
  }
  const at::Tensor y = at::empty({rows, out}, x.options());
  if (bias) {
    y.copy_(*bias);
  }
  add_parts_product(y, parts->first, parts->second, bias ? 1 : 0);
  return y.view(sizes);
}

// dy other^T, which itself records a gradient where second derivatives are asked for.
at::Tensor gradient_product(const ProductOperand& dy, const at::Tensor& other) {
  return c10::GradMode::is_enabled() ? linear_product(dy.matrix(), other) : product_nt(dy, other);
}

// Also right when a gradient is recorded through it (second derivatives).
struct HostLinear : torch::autograd::Function<HostLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["has_bias"] = bias.has_value();
    return host_linear(x, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const ProductOperand dy = gradients[0].reshape({-1, weight.size(0)});
    variable_list result(3);
    if (context->needs_input_grad(0)) {
      result[0] = gradient_product(dy, weight.t()).view(x.sizes());
    }
    if (context->needs_input_grad(1)) {
      result[1] = gradient_product(dy.t(), x.reshape({-1, weight.size(1)}).t());
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      result[2] = dy.matrix().sum(0);
    }
    return result;
  }
};

void add_strict_product_tn(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                           double beta) {
  const int64_t n = a.size(1);
  const int64_t k = b.size(1);
  const bool onednn = use_onednn(ProductKind::kWeights, a, b, a.size(0), n, k);
  if (!onednn && sum.scalar_type() == a.scalar_type()) {
    sum.addmm_(a.t(), b, beta);
    return;
  }
  // CUDA adds narrow products to fp32, and no wider ones.
  const bool is_narrow = a.element_size() < sum.element_size();
  if (sum.is_cuda() && sum.scalar_type() == at::kFloat && is_narrow) {
    at::Tensor out = sum;
    at::addmm_out(out, out, a.t(), b, at::kFloat, beta);
    return;
  }
  // Neither oneDNN nor another device's product of another dtype can add to its output: parts of it
  // that stay in the cache are computed and added one by one.
  const int64_t rows = std::max<int64_t>(64, (int64_t{1} << 18) / std::max<int64_t>(k, 1));
  for (int64_t row = 0; row < n; row += rows) {
    const int64_t count = std::min(rows, n - row);
    const at::Tensor a_part = a.narrow(1, row, count).t();
    const at::Tensor part = onednn ? onednn_linear(a_part, b.t()) : at::mm(a_part, b);
    const at::Tensor target = sum.narrow(0, row, count);
    if (beta == 0) {
      target.copy_(part);
    } else if (beta == 1) {
      target.add_(part);
    } else {
      target.mul_(beta).add_(part);
    }
  }
}

}  // namespace

std::string to_string(ProductEngine engine) {
  switch (engine) {
    case ProductEngine::kAuto:
      return "auto";
    case ProductEngine::kMkl:
      return "MKL";
    case ProductEngine::kOneDnn:
      return "oneDNN";
  }
  fail(Code::kInvalidArgument, "no product engine has the number {}", static_cast<int>(engine));
}

bool is_worth_onednn(ProductKind kind, const ProductSpeed& speed, int64_t rows) {
  constexpr int64_t kStep = 64;
  return rows % kStep == 0 ||
         faster_engine(kind, speed, /*onednn_is_usual=*/false) == ProductEngine::kOneDnn;
}

void set_product_engine(ProductEngine engine) {
  FSDP2_CHECK(engine != ProductEngine::kOneDnn || onednn_is_there(), Code::kUnsupported,
              "this LibTorch has no oneDNN: use MKL or auto");
  chosen_engine.store(engine, std::memory_order_relaxed);
}

bool product_engine_is_set() {
  return chosen_engine.load(std::memory_order_relaxed) != ProductEngine::kAuto;
}

bool product_engine_is_measured() {
  static const bool is_known = engines_have_avx2() && at::globalContext().hasMKL();
  return !is_known;
}

const ProductSpeed& product_speed() {
  static const ProductSpeed speed = measure();  // ranks that are threads wait for the first
  return speed;
}

ProductEngine faster_engine(ProductKind kind, const ProductSpeed& speed, bool onednn_is_usual) {
  const bool is_rows = kind == ProductKind::kRows;
  const double mkl = is_rows ? speed.mkl.rows : speed.mkl.weights;
  const double onednn = is_rows ? speed.onednn.rows : speed.onednn.weights;
  const bool onednn_wins = is_rows && onednn_is_usual ? onednn > 0 && mkl <= kClearlyFaster * onednn
                                                      : onednn > kClearlyFaster * mkl;
  return onednn_wins ? ProductEngine::kOneDnn : ProductEngine::kMkl;
}

ProductEngine product_engine(ProductKind kind) {
  const ProductEngine engine = chosen_engine.load(std::memory_order_relaxed);
  return engine == ProductEngine::kAuto ? engine_of_auto(kind) : engine;
}

std::string describe_product_engine() {
  const ProductEngine engine = chosen_engine.load(std::memory_order_relaxed);
  if (engine != ProductEngine::kAuto) {
    return fmt::format("fp32 products on the CPU: {} (set)", to_string(engine));
  }
  if (!product_engine_is_measured()) {
    return "fp32 products on the CPU: MKL (as fast as oneDNN with AVX2 alone)";
  }
  const ProductSpeed& speed = product_speed();
  return fmt::format("fp32 products on the CPU: {} (measured: MKL {:.0f}, oneDNN {:.0f} GFLOP/s)",
                     describe_measured(), speed.mkl.all, speed.onednn.all);
}

at::Tensor linear_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto given_bias = bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
  const bool is_linear = weight.dim() == 2 && x.dim() >= 1 && x.size(-1) == weight.size(1) &&
                         weight.size(1) > 0 &&
                         (!bias.defined() || (bias.scalar_type() == x.scalar_type() &&
                                              bias.dim() == 1 && bias.size(0) == weight.size(0)));
  if (is_linear) {
    const int64_t rows = x.numel() / weight.size(1);
    if (parts_for(x, weight, rows, weight.size(0), weight.size(1)) > 0 ||
        use_widened(x, weight, rows, weight.size(0), weight.size(1)) ||
        use_onednn(ProductKind::kRows, x, weight, rows, weight.size(0), weight.size(1)) ||
        use_onednn(ProductKind::kWeights, x, weight, rows, weight.size(0), weight.size(1))) {
      return HostLinear::apply(x, weight, given_bias);
    }
  }
  // Its backward sums a bias's gradient up faster.
  if (bias.defined() && !x.is_cpu() && !x.is_meta() && fit_shared_input(x, weight, bias)) {
    return shared_input_products(x, weight, bias)[0];
  }
  return at::linear(x, weight, given_bias);  // and its messages for what does not fit
}

ProductOperand::ProductOperand(const at::Tensor& matrix)
    : matrix_(matrix), parts_(std::make_shared<Bf16Parts>()) {}

ProductOperand ProductOperand::t() const {
  ProductOperand result = *this;
  result.matrix_ = matrix_.t();
  result.parts_are_transposed_ = !parts_are_transposed_;
  return result;
}

Bf16Parts ProductOperand::parts(int number) const {
  if (!parts_->high.defined() || (number == 2) != parts_->low.defined()) {
    *parts_ = split_in_bf16(parts_are_transposed_ ? matrix_.t() : matrix_, number);
  }
  Bf16Parts result = *parts_;
  result.is_transposed = result.is_transposed != parts_are_transposed_;
  return result;
}

at::Tensor strict_product_nt(const at::Tensor& a, const at::Tensor& b) {
  return use_onednn(kind_by_left(a), a, b, a.size(0), b.size(0), a.size(1)) ? onednn_linear(a, b)
                                                                            : at::mm(a, b.t());
}

at::Tensor product_nt(const ProductOperand& a, const ProductOperand& b) {
  const at::Tensor& left = a.matrix();
  const at::Tensor& right = b.matrix();
  if (use_widened(left, right, left.size(0), right.size(0), left.size(1))) {
    return widened_product_nt(left, right);
  }
  const int number = parts_for(left, right, left.size(0), right.size(0), left.size(1));
  const auto parts = number == 0 ? std::nullopt : parts_of_both(a, b.t(), number);
  if (!parts) {
    return strict_product_nt(left, right);
  }
  const at::Tensor product = at::empty({left.size(0), right.size(0)}, left.options());
  add_parts_product(product, parts->first, parts->second, 0);
  return product;
}

void add_product_tn(const at::Tensor& sum, const ProductOperand& a, const ProductOperand& b,
                    double beta) {
  const at::Tensor& left = a.matrix();
  const at::Tensor& right = b.matrix();
  if (sum.scalar_type() == at::kFloat &&
      use_widened(left, right, left.size(1), right.size(1), left.size(0))) {
    add_widened_product_tn(sum, left, right, beta);
    return;
  }
  const bool can_add = sum.scalar_type() == at::kFloat && sum.is_contiguous();
  const int number =
      can_add ? parts_for(left, right, left.size(1), right.size(1), left.size(0)) : 0;
  const auto parts = number == 0 ? std::nullopt : parts_of_both(a.t(), b, number);
  if (!parts) {
    add_strict_product_tn(sum, left, right, beta);
    return;
  }
  add_parts_product(sum, parts->first, parts->second, beta);
}

}  // namespace fsdp2::nn
