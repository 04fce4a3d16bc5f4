// The kernels of a real GPU beside the host's loops and ATen in fp64. Their arithmetic is tested
// without one in tests/core/cuda; here it is their threads, memory and streams.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <vector>

#include "core/nn/kernels/device_kernels.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/kernels/shared_input.h"
#include "core/nn/layers/head_loss.h"
#include "tests/core/nn/closeness.h"
#include "tests/gpu/missing_gpu.h"

namespace fsdp2::nn {
namespace {

struct NormResult {
  at::Tensor y;
  at::Tensor rstd;
  at::Tensor dx;
  at::Tensor dw;
};

NormResult norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& dy) {
  NormResult result{at::empty_like(x), at::empty({x.size(0)}, x.options().dtype(at::kFloat)),
                    at::empty_like(x), at::empty_like(w)};
  const DeviceKernels* kernels = device_kernels(x);
  kernels->rms_norm_forward(x, {}, w, 1e-5, result.y, result.rstd);
  kernels->rms_norm_backward(dy, x, w, result.rstd, {}, result.dx, result.dw);
  return result;
}

// A residual sum, its norm, and the gradients from those of both: sum, y, dx, dw and, of a layer
// norm, db.
std::vector<at::Tensor> normed_sum(bool is_layer_norm, const at::Tensor& x,
                                   const at::Tensor& addend, const at::Tensor& w,
                                   const at::Tensor& b, const at::Tensor& dy,
                                   const at::Tensor& dsum) {
  const Residual residual{addend, at::empty_like(x)};
  const at::Tensor y = at::empty_like(x);
  const at::Tensor mean = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
  const at::Tensor rstd = at::empty_like(mean);
  const at::Tensor dx = at::empty_like(x);
  const at::Tensor dw = at::empty_like(w);
  const at::Tensor db = at::empty_like(w);
  const DeviceKernels* kernels = device_kernels(x);
  if (!is_layer_norm) {
    kernels->rms_norm_forward(x, residual, w, 1e-5, y, rstd);
    kernels->rms_norm_backward(dy, residual.sum, w, rstd, dsum, dx, dw);
    return {residual.sum, y, dx, dw};
  }
  kernels->layer_norm_forward(x, residual, w, b, 1e-5, y, mean, rstd);
  kernels->layer_norm_backward(dy, residual.sum, w, mean, rstd, dsum, dx, dw, db);
  return {residual.sum, y, dx, dw, db};
}

struct Tolerance {
  at::ScalarType dtype;
  double value;  // relative to the largest element
};

class GpuKernels : public ::testing::TestWithParam<Tolerance> {
 protected:
  void SetUp() override {
    if (const auto reason = missing_gpu()) {
      GTEST_SKIP() << *reason;
    }
    kernels_ = device_kernels(at::empty({0}, on_gpu()));
    ASSERT_NE(kernels_, nullptr);
  }

  at::ScalarType dtype() const { return GetParam().dtype; }
  double tolerance() const { return GetParam().value; }
  at::TensorOptions on_gpu() const { return at::device(at::kCUDA).dtype(dtype()); }

  at::Tensor random(at::IntArrayRef shape, uint64_t seed, double factor = 1) const {
    return (random_leaf(shape, seed).detach() * factor).to(at::kCUDA, dtype());
  }

  // `offset` elements into other memory, so that no pack begins where it should.
  static at::Tensor shifted(const at::Tensor& values, int64_t offset) {
    at::Tensor memory = at::empty({values.numel() + offset}, values.options());
    return memory.narrow(0, offset, values.numel()).view(values.sizes()).copy_(values);
  }

  static at::Tensor on_host(const at::Tensor& values) { return values.to(at::kCPU); }
  static at::Tensor wide(const at::Tensor& values) { return values.to(at::kCPU, at::kDouble); }

  void expect_close(const at::Tensor& actual, const at::Tensor& expected) const {
    EXPECT_LE(relative_difference(wide(actual), wide(expected)), tolerance());
  }

  const DeviceKernels* kernels_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Dtypes, GpuKernels,
                         ::testing::Values(Tolerance{at::kFloat, 4e-6},
                                           Tolerance{at::kBFloat16, 8e-3},
                                           Tolerance{at::kHalf, 1e-3}),
                         [](const auto& tested) { return c10::toString(tested.param.dtype); });

// Rows for warps, for blocks, for neither packs nor shared memory.
TEST_P(GpuKernels, RmsNormAgreesWithTheHosts) {
  for (const int64_t n : {5, 37, 128, 896, 1024, 1536, 4096, 4097, 11264, 16384}) {
    // More rows than parts of the sum over them.
    for (const int64_t rows : {1, 9, n <= 4096 ? 3000 : 700}) {
      const at::Tensor x = random({rows, n}, 1);
      const at::Tensor w = random({n}, 2);
      const at::Tensor dy = random({rows, n}, 3);
      const NormResult actual = norm(x, w, dy);
      const NormResult expected = norm(on_host(x), on_host(w), on_host(dy));
      expect_close(actual.y, expected.y);
      EXPECT_LE(relative_difference(wide(actual.rstd), wide(expected.rstd)), 4e-6);
      expect_close(actual.dx, expected.dx);
      EXPECT_LE(relative_difference(wide(actual.dw), wide(expected.dw)), 2 * tolerance());
      EXPECT_TRUE(norm(x, w, dy).dw.equal(actual.dw)) << "the order of a sum has changed";
    }
  }
}

// The same beside ATen in fp64.
TEST_P(GpuKernels, NormsOfResidualSumsAgreeWithFp64) {
  for (const int64_t n : {5, 128, 768, 896, 4097, 6000, 11264}) {
    for (const int64_t rows : {1, 9, n <= 4096 ? 3000 : 700}) {
      for (const bool is_layer_norm : {false, true}) {
        const at::Tensor x = random({rows, n}, 1);
        const at::Tensor addend = random({rows, n}, 2);
        const at::Tensor w = random({n}, 3);
        const at::Tensor b = random({n}, 4);
        const at::Tensor dy = random({rows, n}, 5);
        const at::Tensor dsum = random({rows, n}, 6);
        const auto actual = normed_sum(is_layer_norm, x, addend, w, b, dy, dsum);
        EXPECT_TRUE(actual[0].equal(x + addend));

        const at::Tensor sum = wide(actual[0]).requires_grad_(true);
        const at::Tensor wide_w = wide(w).requires_grad_(true);
        const at::Tensor wide_b = wide(b).requires_grad_(true);
        const at::Tensor normed = is_layer_norm ? at::layer_norm(sum, {n}, wide_w, wide_b, 1e-5)
                                                : at::rms_norm(sum, {n}, wide_w, 1e-5);
        normed.backward(wide(dy));
        const std::vector<at::Tensor> expected = {sum, normed, sum.grad() + wide(dsum),
                                                  wide_w.grad(), wide_b.grad()};
        for (size_t i = 0; i < actual.size(); ++i) {
          EXPECT_LE(relative_difference(wide(actual[i]), expected[i]), 2 * tolerance())
              << i << " of " << rows << " x " << n << (is_layer_norm ? ", layer norm" : "");
        }
        EXPECT_TRUE(normed_sum(is_layer_norm, x, addend, w, b, dy, dsum)[3].equal(actual[3]));
      }
    }
  }
}

TEST_P(GpuKernels, ColumnSumsAgreeWithFp64) {
  for (const int64_t n : {1, 5, 64, 128, 1152, 3072, 10001}) {
    for (const int64_t rows : {0, 1, 31, 1000, n <= 1152 ? 8192 : 1001}) {
      for (const int64_t offset : {0, 1}) {
        const at::Tensor x = shifted(random({rows, n}, 1), offset);
        const at::Tensor sums = at::empty({n}, on_gpu());
        kernels_->column_sums(x, sums);
        // Relative to what the sum is made of: its terms cancel.
        const double scale = std::sqrt(static_cast<double>(rows)) * 4;
        EXPECT_LE(max_difference(wide(sums), wide(x).sum(0)), tolerance() * scale)
            << rows << " x " << n;
        const at::Tensor again = at::empty_like(sums);
        kernels_->column_sums(x, again);
        EXPECT_TRUE(again.equal(sums)) << "the order of a sum has changed";
      }
    }
  }
}

// q, k and v of one input, whose gradients are joined, and a gate and an up.
TEST_P(GpuKernels, ProductsOfASharedInputAgreeWithFp64) {
  for (const std::vector<int64_t>& outputs : {std::vector<int64_t>{896, 128, 128}, {700, 700}}) {
    const auto run = [&](bool is_wide) {
      const auto leaf = [&](at::IntArrayRef shape, uint64_t seed) {
        const at::Tensor values = random(shape, seed);
        return (is_wide ? wide(values) : values).detach().requires_grad_(true);
      };
      std::vector<at::Tensor> leaves = {leaf({3, 100, 256}, 1)};
      std::vector<at::Tensor> weights;
      std::vector<at::Tensor> biases;
      for (const int64_t n : outputs) {
        weights.push_back(leaf({n, 256}, 20 + weights.size()));
        biases.push_back(leaf({n}, 30 + biases.size()));
      }
      leaves.insert(leaves.end(), weights.begin(), weights.end());
      leaves.insert(leaves.end(), biases.begin(), biases.end());
      std::vector<at::Tensor> ys;
      if (!is_wide) {
        ys = shared_input_products(leaves[0], weights, biases);
      }
      for (size_t i = 0; is_wide && i < outputs.size(); ++i) {
        ys.push_back(at::linear(leaves[0], weights[i], biases[i]));
      }
      std::vector<at::Tensor> dys;
      for (size_t i = 0; i < ys.size(); ++i) {
        const at::Tensor dy = random({3, 100, outputs[i]}, 4 + i);
        dys.push_back(is_wide ? wide(dy) : dy);
      }
      const auto gradients = torch::autograd::grad(ys, leaves, dys);
      ys.insert(ys.end(), gradients.begin(), gradients.end());
      return ys;
    };
    const auto actual = run(/*is_wide=*/false);
    const auto expected = run(/*is_wide=*/true);
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_LE(relative_difference(wide(actual[i]), expected[i]), 2 * tolerance()) << i;
    }
  }
}

TEST_P(GpuKernels, SiluMultiplyAgreesWithFp64) {
  for (const int64_t n : {1, 7, 8, 1000, 4096, 1 << 20}) {
    for (const int64_t offset : {0, 1}) {
      const at::Tensor gate = shifted(random({n}, 1, 3), offset);
      const at::Tensor up = shifted(random({n}, 2), offset);
      const at::Tensor dy = shifted(random({n}, 3), offset);
      const at::Tensor y = shifted(gate, offset);
      kernels_->silu_multiply_forward(gate, up, y);
      const at::Tensor dgate = shifted(gate, offset);
      const at::Tensor dup = shifted(gate, offset);
      kernels_->silu_multiply_backward(dy, gate, up, dgate, dup);

      const at::Tensor wide_gate = wide(gate).requires_grad_(true);
      const at::Tensor wide_up = wide(up).requires_grad_(true);
      const at::Tensor expected = at::silu(wide_gate) * wide_up;
      expected.backward(wide(dy));
      expect_close(y, expected);
      expect_close(dgate, wide_gate.grad());
      expect_close(dup, wide_up.grad());
    }
  }
}

TEST_P(GpuKernels, RotateAgreesWithTheHosts) {
  for (const int64_t half : {5, 8, 64}) {
    for (const int64_t heads : {1, 3, 33}) {
      for (const bool inverse : {false, true}) {
        const at::Tensor x = random({3, 17, heads, 2 * half}, 1);
        const at::Tensor angle = random({17, half}, 2, 3).to(at::kFloat);
        for (const at::ScalarType of_angles : {at::kFloat, dtype()}) {
          const at::Tensor cos = angle.cos().to(of_angles);
          const at::Tensor sin = angle.sin().to(of_angles);
          const at::Tensor y = at::empty_like(x);
          kernels_->rotate(x, cos, sin, inverse, y);
          const at::Tensor expected = at::empty_like(on_host(x));
          device_kernels(expected)->rotate(on_host(x), on_host(cos), on_host(sin), inverse,
                                           expected);
          expect_close(y, expected);
        }
      }
    }
  }
}

TEST_P(GpuKernels, CrossEntropyAgreesWithFp64) {
  for (const int64_t n : {2, 301, 1024, 50257, 151936}) {
    for (const bool want_gradient : {false, true}) {
      const at::Tensor values = random({33, n}, 1, 4);
      const at::Tensor labels = at::randint(0, n, {33}, on_gpu().dtype(at::kLong));
      const at::Tensor logits = values.clone();
      const at::Tensor loss = kernels_->cross_entropy(logits, labels, want_gradient, 0.25, {});
      EXPECT_TRUE(loss.is_cuda());
      EXPECT_EQ(loss.scalar_type(), at::kDouble);

      const at::Tensor wide_logits = wide(values).requires_grad_(true);
      const at::Tensor expected =
          at::cross_entropy_loss(wide_logits, on_host(labels), {}, at::Reduction::Sum);
      expected.backward(at::full({}, 0.25, at::kDouble));
      EXPECT_LE(relative_difference(wide(loss), expected), 4e-6) << n;
      const at::Tensor left = want_gradient ? wide_logits.grad() : wide(values);
      EXPECT_LE(max_difference(wide(logits), left), want_gradient ? 0.25 * tolerance() : 0) << n;

      const at::Tensor again = values.clone();
      EXPECT_TRUE(kernels_->cross_entropy(again, labels, want_gradient, 0.25, {}).equal(loss));
      EXPECT_TRUE(again.equal(logits));
    }
  }
}

TEST_P(GpuKernels, CrossEntropyLeavesOutRowsOfScaleZero) {
  const at::Tensor logits = random({3, 1001}, 1);
  at::Tensor labels = at::zeros({3}, on_gpu().dtype(at::kLong));
  const at::Tensor alone = logits.narrow(0, 0, 1).clone();
  const at::Tensor expected =
      kernels_->cross_entropy(alone, labels.narrow(0, 0, 1), /*want_gradient=*/true, 0.5, {});
  logits[1].fill_(NAN);
  labels[2].fill_(-100);
  const at::Tensor scales = at::tensor({0.5F, 0.0F, 0.0F}).to(at::kCUDA);
  const at::Tensor loss =
      kernels_->cross_entropy(logits, labels, /*want_gradient=*/true, 1, scales);
  EXPECT_TRUE(loss.equal(expected));
  EXPECT_TRUE(logits.narrow(0, 0, 1).equal(alone));
  EXPECT_EQ(logits.narrow(0, 1, 2).abs().max().item().toFloat(), 0);
}

TEST_P(GpuKernels, ALabelOutsideTheVocabularyGivesNan) {
  for (const int64_t label : {-1, 100}) {
    const at::Tensor logits = random({2, 100}, 1);
    at::Tensor labels = at::zeros({2}, on_gpu().dtype(at::kLong));
    labels[1].fill_(label);
    const at::Tensor loss = kernels_->cross_entropy(logits, labels, /*want_gradient=*/true, 1, {});
    EXPECT_TRUE(std::isnan(loss.item<double>()));
    EXPECT_TRUE(logits[0].isfinite().all().item<bool>());
    EXPECT_TRUE(logits[1].isnan().all().item<bool>());
  }
}

// The layer on a GPU beside the layer on the host, with rows that do not count.
TEST_P(GpuKernels, HeadLossAgreesWithTheHosts) {
  const at::Tensor hidden = random({2, 50, 24}, 1);
  const at::Tensor weight = random({301, 24}, 2);
  at::Tensor labels = at::randint(0, 301, {2, 50}, on_gpu().dtype(at::kLong));
  labels.narrow(1, 10, 20).fill_(-100);
  const auto run = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& y) {
    const at::Tensor x_leaf = x.detach().requires_grad_(true);
    const at::Tensor w_leaf = w.detach().requires_grad_(true);
    const at::Tensor loss = head_loss(x_leaf, w_leaf, y);
    loss.backward();
    return std::vector<at::Tensor>{loss, x_leaf.grad(), w_leaf.grad()};
  };
  const auto actual = run(hidden, weight, labels);
  const auto expected = run(on_host(hidden), on_host(weight), on_host(labels));
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(actual[i].is_cuda());
    EXPECT_LE(relative_difference(wide(actual[i]), wide(expected[i])), 3 * tolerance()) << i;
  }
}

// More tensors than a launch takes, of all dtypes.
TEST_P(GpuKernels, SquareSumAgreesWithFp64) {
  std::vector<at::Tensor> tensors = {at::empty({0}, on_gpu())};
  double expected = 0;
  for (int64_t i = 0; i < 300; ++i) {
    const at::ScalarType mixed = i % 3 == 0 ? at::kFloat : dtype();
    tensors.push_back(shifted(random({i * 731 + 1}, static_cast<uint64_t>(i)).to(mixed), i % 9));
    expected += wide(tensors.back()).square().sum().item<double>();
  }
  const at::Tensor sum = kernels_->square_sum(tensors);
  EXPECT_TRUE(sum.is_cuda());
  EXPECT_NEAR(sum.item<double>(), expected, 1e-12 * expected);
  EXPECT_TRUE(kernels_->square_sum(tensors).equal(sum));
}

// More pairs than a launch takes, of all dtypes, from rows that lie apart.
TEST_P(GpuKernels, CopyEachRoundsAsATenDoes) {
  std::vector<at::Tensor> from;
  std::vector<at::Tensor> to;
  for (int64_t i = 0; i < 200; ++i) {
    const int64_t n = i * 97;
    const at::ScalarType mixed = i % 2 == 0 ? at::kFloat : at::kBFloat16;
    from.push_back(random({3, n + 16}, static_cast<uint64_t>(i)).to(mixed).narrow(1, i % 3, n));
    to.push_back(at::zeros({3, n + 24}, on_gpu()).narrow(1, 8, n));
  }
  from.push_back(random({1000}, 1));
  to.push_back(at::empty({1000}, on_gpu()));
  kernels_->copy_each(from, to);
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_TRUE(to[i].equal(from[i].to(dtype()))) << i;
  }
}

TEST_P(GpuKernels, ScaleRoundsOnce) {
  const at::Tensor factor = at::full({}, 0.3F, on_gpu().dtype(at::kFloat));
  const at::Tensor from = random({3, 10007}, 1).to(at::kFloat);
  const at::Tensor to = at::empty(from.sizes(), on_gpu());
  kernels_->scale(from, factor, to);
  EXPECT_TRUE(to.equal((from * factor).to(dtype())));
  const at::Tensor values = random({1 << 17}, 2);
  const at::Tensor expected = (values.to(at::kFloat) * factor).to(dtype());
  kernels_->scale(values, factor, values);
  EXPECT_TRUE(values.equal(expected));
}

TEST_P(GpuKernels, ProductsAddToASumInFp32) {
  const at::Tensor a = random({300, 500}, 1);
  const at::Tensor b = random({300, 40}, 2);
  const at::Tensor sum = at::full({500, 40}, NAN, on_gpu().dtype(at::kFloat));
  const void* memory = sum.data_ptr();
  add_product_tn(sum, a, b, /*beta=*/0);
  add_product_tn(sum, a, b, /*beta=*/1);
  EXPECT_EQ(sum.data_ptr(), memory);
  // The sum of 600 products is exact to fp32, whatever the dtype of the factors.
  EXPECT_LE(relative_difference(wide(sum), 2 * at::mm(wide(a).t(), wide(b))), 4e-6);
}

TEST_P(GpuKernels, ProductsInFp64AddToASumInFp32) {
  const at::Tensor a = random({300, 500}, 1).to(at::kDouble);
  const at::Tensor b = random({300, 40}, 2).to(at::kDouble);
  const at::Tensor sum = at::ones({500, 40}, on_gpu().dtype(at::kFloat));
  add_product_tn(sum, a, b, /*beta=*/1);
  EXPECT_LE(relative_difference(wide(sum), at::mm(wide(a).t(), wide(b)) + 1), 1e-6);
}

TEST_P(GpuKernels, EmptyTensorsAreLeftAlone) {
  const at::Tensor empty = at::empty({0}, on_gpu());
  kernels_->silu_multiply_forward(empty, empty, empty);
  kernels_->silu_multiply_backward(empty, empty, empty, empty, empty);
  const at::Tensor w = random({64}, 1);
  const at::Tensor no_rows = at::empty({0, 64}, on_gpu());
  EXPECT_EQ(norm(no_rows, w, no_rows).dw.abs().max().item().toFloat(), 0);
  EXPECT_EQ(kernels_->square_sum({empty}).item<double>(), 0);
  kernels_->copy_each({}, {});
  const at::Tensor no_labels = at::empty({0}, on_gpu().dtype(at::kLong));
  EXPECT_EQ(kernels_->cross_entropy(no_rows, no_labels, true, 1, {}).item<double>(), 0);
  const at::Tensor no_tokens = at::empty({0, 4, 2, 8}, on_gpu());
  const at::Tensor angles = at::empty({4, 4}, on_gpu());
  kernels_->rotate(no_tokens, angles, angles, /*inverse=*/false, no_tokens);
}

}  // namespace
}  // namespace fsdp2::nn
