#include "core/nn/kernels/widened_product.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/log.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/kernels/product_race.h"

namespace fsdp2::nn {

namespace {

// Rows, columns and depth of a product that is widened. Each is what one of its three matrices is
// used for once it was converted: with fewer, that costs more than fp32 gains.
constexpr int64_t kLeastUses = 128;
constexpr int64_t kLeastUsesOfNoProducts = 4;  // where LibTorch has none of bf16
// Elements of a block: 4 MiB of fp32.
constexpr int64_t kBlockNumel = int64_t{1} << 20;
// Rows of a block at least: with fewer, the engine packs the other operand too often.
constexpr int64_t kFewestLines = 256;

std::atomic<Bf16Products> chosen_products{Bf16Products::kAuto};
RaceVerdict bf16_verdict;

struct Bf16Race {
  double bf16_gflops;
  double fp32_gflops;

  bool fp32_wins() const { return fp32_gflops > kClearlyFaster * bf16_gflops; }
};

// here: what this process would do by itself.
std::string describe_bf16(bool here, const std::string& reason) {
  const bool is_widened = bf16_verdict.get().value_or(here);
  return fmt::format("{} ({}{})", is_widened ? "widened to fp32" : "native", reason,
                     is_widened == here ? "" : "; another rank measured otherwise");
}

std::string describe_bf16(const Bf16Race& race) {
  return describe_bf16(race.fp32_wins(), fmt::format("measured: bf16 {:.0f}, fp32 {:.0f} GFLOP/s",
                                                     race.bf16_gflops, race.fp32_gflops));
}

Bf16Race bf16_raced_and_logged() {
  const std::vector<RaceSpeed> speeds =
      race_products({[](const at::Tensor& a, const at::Tensor& b) { return at::mm(a, b.t()); },
                     strict_product_nt},
                    {at::kBFloat16, at::kFloat});
  const Bf16Race result{speeds[0].all, speeds[1].all};
  log(LogLevel::kInfo, "products", "bf16 products on the CPU: {}", describe_bf16(result));
  return result;
}

// Two measurements may come out differently, and so would the bits of two runs.
bool may_measure() {
  return !product_engine_is_set() && !at::globalContext().deterministicAlgorithms();
}

bool may_widen() { return !libtorch_has_bf16_products() || may_measure(); }

// Ranks that are threads wait for the first.
const Bf16Race& bf16_race() {
  static const Bf16Race result = bf16_raced_and_logged();
  return result;
}

at::Tensor widened(const at::Tensor& matrix) { return matrix.to(at::kFloat); }

// Blocks of `size` lines, of which each has `others` elements at most.
void visit_wide_blocks(int64_t size, int64_t others,
                       const std::function<void(int64_t begin, int64_t count)>& visit) {
  const int64_t lines = std::max(kFewestLines, kBlockNumel / std::max<int64_t>(1, others));
  for (int64_t begin = 0; begin < size; begin += lines) {
    visit(begin, std::min(lines, size - begin));
  }
}

}  // namespace

bool libtorch_has_bf16_products() {
  static const bool has_products = [] {
    const auto asked =
        c10::Dispatcher::singleton().findSchema({"mkldnn::_is_mkldnn_bf16_supported", ""});
    return !asked || asked->typed<bool()>().call();
  }();
  return has_products;
}

void set_bf16_products(Bf16Products products) {
  chosen_products.store(products, std::memory_order_relaxed);
  bf16_verdict.forget();
}

std::optional<bool> widening_is_faster() {
  if (chosen_products.load(std::memory_order_relaxed) != Bf16Products::kAuto || !may_widen()) {
    return std::nullopt;
  }
  return !libtorch_has_bf16_products() || bf16_race().fp32_wins();
}

void settle_bf16_products(bool are_widened) { bf16_verdict.settle(are_widened); }

bool bf16_products_are_widened() {
  const Bf16Products products = chosen_products.load(std::memory_order_relaxed);
  if (products != Bf16Products::kAuto) {
    return products == Bf16Products::kWidened;
  }
  const std::optional<bool> is_faster = widening_is_faster();
  return is_faster && bf16_verdict.get().value_or(*is_faster);
}

bool bf16_products_are_widened_on(const at::Device& device) {
  const bool is_measured = chosen_products.load(std::memory_order_relaxed) == Bf16Products::kAuto;
  return device.is_meta() && is_measured ? may_widen() && bf16_verdict.get().value_or(false)
                                         : bf16_products_are_widened();
}

bool is_for_widening(int64_t m, int64_t n, int64_t k) {
  return std::min({m, n, k}) >=
         (libtorch_has_bf16_products() ? kLeastUses : kLeastUsesOfNoProducts);
}

std::string describe_bf16_products() {
  if (chosen_products.load(std::memory_order_relaxed) != Bf16Products::kAuto) {
    return bf16_products_are_widened() ? "widened to fp32 (set)" : "native (set)";
  }
  if (!libtorch_has_bf16_products()) {
    return describe_bf16(/*here=*/true, "LibTorch has none of bf16 for this CPU");
  }
  return may_measure() ? describe_bf16(bf16_race()) : "native (as runs must repeat)";
}

at::Tensor widened_product_nt(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  const int64_t m = a.size(0);
  const int64_t n = b.size(0);
  const int64_t k = a.size(1);
  const at::Tensor wide_bias = bias.defined() ? widened(bias) : bias;
  if (k >= std::max(m, n)) {
    const at::Tensor sum = at::empty({m, n}, a.options().dtype(at::kFloat));
    add_widened_product_tn(sum, a.t(), b.t(), 0);
    return (bias.defined() ? sum.add_(wide_bias) : sum).to(a.scalar_type());
  }
  const at::Tensor result = at::empty({m, n}, a.options());
  if (m > n) {
    const at::Tensor wide_b = widened(b);
    visit_wide_blocks(m, std::max(n, k), [&](int64_t row, int64_t count) {
      const at::Tensor rows = strict_product_nt(widened(a.narrow(0, row, count)), wide_b);
      result.narrow(0, row, count).copy_(bias.defined() ? rows.add_(wide_bias) : rows);
    });
  } else {
    const at::Tensor wide_a = widened(a);
    visit_wide_blocks(n, std::max(m, k), [&](int64_t column, int64_t count) {
      const at::Tensor columns = strict_product_nt(wide_a, widened(b.narrow(0, column, count)));
      result.narrow(1, column, count)
          .copy_(bias.defined() ? columns.add_(wide_bias.narrow(0, column, count)) : columns);
    });
  }
  return result;
}

void add_widened_product_tn(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                            double beta) {
  const int64_t rows = a.size(0);
  const int64_t n = a.size(1);
  const int64_t k = b.size(1);
  if (rows >= std::max(n, k)) {
    visit_wide_blocks(rows, std::max(n, k), [&](int64_t row, int64_t count) {
      add_product_tn(sum, widened(a.narrow(0, row, count)), widened(b.narrow(0, row, count)),
                     row == 0 ? beta : 1);
    });
  } else if (n > k) {
    const at::Tensor wide_b = widened(b);
    visit_wide_blocks(n, std::max(rows, k), [&](int64_t column, int64_t count) {
      add_product_tn(sum.narrow(0, column, count), widened(a.narrow(1, column, count)), wide_b,
                     beta);
    });
  } else {
    const at::Tensor wide_a = widened(a);
    visit_wide_blocks(k, std::max(rows, n), [&](int64_t column, int64_t count) {
      add_product_tn(sum.narrow(1, column, count), wide_a, widened(b.narrow(1, column, count)),
                     beta);
    });
  }
}

}  // namespace fsdp2::nn
