// Large products of bf16 matrices on CPUs whose fp32 units are faster than their bf16 ones, which
// is to say on those without AMX: the operands are widened to fp32, block by block, multiplied as
// fp32 products are, and the result is rounded once. Products of bf16 numbers are exact in fp32 and
// LibTorch's own sums are fp32 too, so only the order of summation differs.
//
// A block takes a few MiB; beside that, the smaller operand is widened as a whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace fsdp2::nn {

enum class Bf16Products {
  // Through fp32 where LibTorch has no bf16 products for this CPU, or if fp32's are clearly faster:
  // measured once, by the first large one. Native without a measurement, which may come out
  // differently in another run, once a product engine is set or LibTorch's operators are to be
  // deterministic.
  kAuto,
  kNative,   // LibTorch's own
  kWidened,  // through fp32
};

// Whether its products of bf16 on this CPU are more than loops over single numbers, which are up to
// a hundred times as slow as fp32: these are oneDNN's.
bool libtorch_has_bf16_products();

// For the whole process; kAuto until it is set.
void set_bf16_products(Bf16Products products);
// What was measured, or is so without a measurement; nothing where neither decides.
std::optional<bool> widening_is_faster();
// Ranks must round alike, and a measurement may be disturbed: what they have made of
// widening_is_faster() together, which from then on stands for it, until the products are set anew.
void settle_bf16_products(bool are_widened);
// What large products do now. The first call that has to measure takes some tens of ms, and logs
// what came of it.
bool bf16_products_are_widened();
// The same for tensors on the host or, for plans, on meta: nothing is measured for those, as the
// ranks of a run are to plan alike, so that a measurement counts from settle_bf16_products on.
bool bf16_products_are_widened_on(const at::Device& device);
// Whether a product of such sizes, a [m,k] b [k,n], gains by it if large ones do: in each product
// that is not thin, and in all but the thinnest where LibTorch has none.
bool is_for_widening(int64_t m, int64_t n, int64_t k);
// One line: what they do and why, with the speeds if they were measured.
std::string describe_bf16_products();

// For bf16 matrices on the CPU; no gradient is recorded. bias: [n], bf16, or undefined.
// a [m,k] b [n,k]^T + bias -> [m,n]
at::Tensor widened_product_nt(const at::Tensor& a, const at::Tensor& b,
                              const at::Tensor& bias = {});
// sum [n,k] = beta * sum + a[m,n]^T b[m,k]; sum is fp32, and with beta 0 its contents do not
// matter.
void add_widened_product_tn(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                            double beta);

}  // namespace fsdp2::nn
