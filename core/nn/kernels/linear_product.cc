#include "core/nn/kernels/linear_product.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string_view>

#include "core/base/error.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Below this many multiplications oneDNN's cost of a call (about 10 us) outweighs its speed.
constexpr int64_t kSmallProduct = int64_t{1} << 20;
// MKL is kept unless oneDNN is faster by this factor: near a tie the noise of one measurement must
// not decide, or two runs on one machine would round differently.
constexpr double kClearlyFaster = 1.25;

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

// Forward product and both gradients of a linear layer of medium size, by both engines in turns, so
// that a passing disturbance hits both; the best run of each counts.
ProductSpeed measure() {
  constexpr int64_t kRows = 256;
  constexpr int64_t kIn = 512;
  constexpr int64_t kOut = 768;
  constexpr int kRuns = 5;  // the first one warms up
  const c10::AutoGradMode no_grad(false);
  const auto options = at::device(at::kCPU).dtype(at::kFloat);
  const at::Tensor x = at::ones({kRows, kIn}, options);
  const at::Tensor weight = at::ones({kOut, kIn}, options);
  const at::Tensor dy = at::ones({kRows, kOut}, options);
  const auto gflops = [&](auto product) {
    const auto start = std::chrono::steady_clock::now();
    product(x, weight);
    product(dy, weight.t());
    product(dy.t(), x.t());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    return 3 * 2.0 * kRows * kIn * kOut / seconds.count() * 1e-9;
  };
  const bool has_onednn = onednn_is_there();
  ProductSpeed best{0, 0};
  for (int run = 0; run < kRuns; ++run) {
    const double mkl = gflops([](const auto& a, const auto& b) { return at::mm(a, b.t()); });
    const double onednn =
        has_onednn ? gflops([](const auto& a, const auto& b) { return onednn_linear(a, b); }) : 0;
    if (run > 0) {
      best = {std::max(best.mkl_gflops, mkl), std::max(best.onednn_gflops, onednn)};
    }
  }
  return best;
}

bool is_small(int64_t m, int64_t n, int64_t k) {
  int64_t multiplications = 0;
  return __builtin_mul_overflow(m * n, k, &multiplications) ? false
                                                            : multiplications < kSmallProduct;
}

bool use_onednn(const at::Tensor& a, const at::Tensor& b, int64_t m, int64_t n, int64_t k) {
  return a.is_cpu() && b.is_cpu() && a.scalar_type() == at::kFloat &&
         b.scalar_type() == at::kFloat && !is_small(m, n, k) &&
         product_engine() == ProductEngine::kOneDnn;
}

// Also right when a gradient is recorded through it (second derivatives).
struct OneDnnLinear : torch::autograd::Function<OneDnnLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["has_bias"] = bias.has_value();
    return onednn_linear(x, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor dy = gradients[0].reshape({-1, weight.size(0)});
    variable_list result(3);
    if (context->needs_input_grad(0)) {
      result[0] = linear_product(dy, weight.t()).view(x.sizes());
    }
    if (context->needs_input_grad(1)) {
      result[1] = linear_product(dy.t(), x.reshape({-1, weight.size(1)}).t());
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      result[2] = dy.sum(0);
    }
    return result;
  }
};

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

void set_product_engine(ProductEngine engine) {
  FSDP2_CHECK(engine != ProductEngine::kOneDnn || onednn_is_there(), Code::kUnsupported,
              "this LibTorch has no oneDNN: use MKL or auto");
  chosen_engine.store(engine, std::memory_order_relaxed);
}

const ProductSpeed& product_speed() {
  static const ProductSpeed speed = measure();  // ranks that are threads wait for the first
  return speed;
}

ProductEngine product_engine() {
  const ProductEngine engine = chosen_engine.load(std::memory_order_relaxed);
  if (engine != ProductEngine::kAuto) {
    return engine;
  }
  const ProductSpeed& speed = product_speed();
  return speed.onednn_gflops > kClearlyFaster * speed.mkl_gflops ? ProductEngine::kOneDnn
                                                                 : ProductEngine::kMkl;
}

std::string describe_product_engine() {
  const ProductEngine engine = chosen_engine.load(std::memory_order_relaxed);
  if (engine != ProductEngine::kAuto) {
    return fmt::format("fp32 products on the CPU: {} (set)", to_string(engine));
  }
  const ProductSpeed& speed = product_speed();
  return fmt::format("fp32 products on the CPU: {} (measured: MKL {:.0f}, oneDNN {:.0f} GFLOP/s)",
                     to_string(product_engine()), speed.mkl_gflops, speed.onednn_gflops);
}

at::Tensor linear_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto given_bias = bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
  const bool is_linear = weight.dim() == 2 && x.dim() >= 1 && x.size(-1) == weight.size(1) &&
                         weight.size(1) > 0 &&
                         (!bias.defined() || bias.scalar_type() == at::kFloat);
  if (is_linear &&
      use_onednn(x, weight, x.numel() / weight.size(1), weight.size(0), weight.size(1))) {
    return OneDnnLinear::apply(x, weight, given_bias);
  }
  return at::linear(x, weight, given_bias);  // and its messages for what does not fit
}

at::Tensor product_nt(const at::Tensor& a, const at::Tensor& b) {
  return use_onednn(a, b, a.size(0), b.size(0), a.size(1)) ? onednn_linear(a, b) : at::mm(a, b.t());
}

void add_product_tn(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, double beta) {
  const int64_t n = a.size(1);
  const int64_t k = b.size(1);
  const bool onednn = use_onednn(a, b, a.size(0), n, k);
  if (!onednn && sum.scalar_type() == a.scalar_type()) {
    sum.addmm_(a.t(), b, beta);
    return;
  }
  if (sum.is_cuda() && sum.scalar_type() == at::kFloat) {  // CUDA adds narrow products to fp32
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

}  // namespace fsdp2::nn
