// The fp32 matrix products of linear layers on CPUs, through whichever of LibTorch's two engines is
// faster on this CPU: MKL (LibTorch's default) or oneDNN (per call; LibTorch's process-wide switch
// is left alone). Both are strict fp32. On Intel they are equal, and MKL is kept unless oneDNN
// clearly wins. On other CPUs with AVX-512, which MKL makes no use of there, oneDNN is faster by a
// sixth or twice as fast, and kept unless MKL clearly wins; a weight's gradient is MKL's unless
// oneDNN clearly wins. Where there is AVX2 alone, both come to nine tenths of what the CPU can do:
// MKL, without a measurement. matmul_precision.h allows products of less precision, where they are
// faster.
//
//   at::Tensor y = nn::linear_product(x, weight, bias);   // differentiable; any dtype, any device
//
// Other dtypes and devices and small products go to at::linear, or to shared_input.h where a device
// has fused loops and there is a bias. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/nn/kernels/bf16_parts.h"
#include "core/nn/kernels/product_race.h"

namespace fsdp2::nn {

enum class ProductEngine {
  kAuto,  // measured once, at the first product that is large enough, where it is not known
  kMkl,
  kOneDnn,
};

std::string to_string(ProductEngine engine);

enum class ProductKind {
  kRows,     // with a result for each row of x: forward, and x's gradient
  kWeights,  // a weight's gradient
};

struct ProductSpeed {
  RaceSpeed mkl;
  RaceSpeed onednn;  // 0 if LibTorch has no oneDNN here
};

// Which is the faster one by these speeds. onednn_is_usual: for products of rows it is kept unless
// MKL clearly wins, and not the other way round.
ProductEngine faster_engine(ProductKind kind, const ProductSpeed& speed, bool onednn_is_usual);

// Whether oneDNN takes a product of so many rows where it is the faster one. It makes and keeps
// code for each number of them, which is another in each step where a router chooses them, so that
// it must clearly win there. Numbers that recur, as those of a batch, are divisible by 64.
bool is_worth_onednn(ProductKind kind, const ProductSpeed& speed, int64_t rows);

// The engine for the whole process; kAuto until it is set.
void set_product_engine(ProductEngine engine);
// Whether it is set, and not kAuto: numbers then depend on no measurement.
bool product_engine_is_set();
// Whether kAuto measures on this CPU.
bool product_engine_is_measured();
// What large fp32 products of that kind use now: never kAuto.
ProductEngine product_engine(ProductKind kind);
// The measurement behind kAuto, over the three products of a linear layer: about a tenth of a
// second when called first.
const ProductSpeed& product_speed();
// One line: the engine or engines and why, with the two speeds if they were measured.
std::string describe_product_engine();

// y = x W^T + b. x: [..., in], weight: [out, in], bias: [out] or undefined.
at::Tensor linear_product(const at::Tensor& x, const at::Tensor& weight,
                          const at::Tensor& bias = {});

// A matrix that several products take: what their precision makes of it is made once, by the first
// of them. Its elements must stay as they are meanwhile. For one thread.
class ProductOperand {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a matrix is one where a single product takes it
  ProductOperand(const at::Tensor& matrix);

  const at::Tensor& matrix() const { return matrix_; }
  ProductOperand t() const;
  // As split_in_bf16.
  Bf16Parts parts(int number) const;

 private:
  at::Tensor matrix_;
  std::shared_ptr<Bf16Parts> parts_;  // of the matrix, or of its transpose
  bool parts_are_transposed_ = false;
};

// Plain products of matrices, for use inside autograd Functions (no gradient is recorded).
// a [m,k] b[n,k]^T -> [m,n]
at::Tensor product_nt(const ProductOperand& a, const ProductOperand& b);
// sum [n,k] = beta * sum + a[m,n]^T b[m,k]; with beta 0 sum's contents do not matter.
void add_product_tn(const at::Tensor& sum, const ProductOperand& a, const ProductOperand& b,
                    double beta);

// As product_nt, and strict fp32 whatever the precision is.
at::Tensor strict_product_nt(const at::Tensor& a, const at::Tensor& b);

}  // namespace fsdp2::nn
