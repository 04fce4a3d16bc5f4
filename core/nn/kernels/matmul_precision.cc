#include "core/nn/kernels/matmul_precision.h"

#include <ATen/ops/empty.h>

#include <atomic>
#include <limits>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/nn/kernels/bf16_parts.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/kernels/product_race.h"

namespace fsdp2::nn {

namespace {

// Rows and columns of a product from parts. With fewer, to split the other operand costs more than
// the faster product saves.
constexpr int64_t kFewest = 128;

std::atomic<MatmulPrecision> chosen_precision{MatmulPrecision::kHighest};

RaceVerdict parts_verdict;

int parts_of(MatmulPrecision precision) {
  switch (precision) {
    case MatmulPrecision::kHighest:
      return 0;
    case MatmulPrecision::kHigh:
    case MatmulPrecision::kHighAlways:
      return 2;
    case MatmulPrecision::kMedium:
    case MatmulPrecision::kMediumAlways:
      return 1;
  }
  fail(Code::kInvalidArgument, "no matmul precision has the number {}",
       static_cast<int>(precision));
}

bool must_be_faster(MatmulPrecision precision) {
  return precision == MatmulPrecision::kHigh || precision == MatmulPrecision::kMedium;
}

at::Tensor product_of_parts(const at::Tensor& a, const at::Tensor& b, int parts) {
  const at::Tensor product = at::empty({a.size(0), b.size(0)}, a.options());
  add_parts_product(product, split_in_bf16(a, parts), split_in_bf16(b.t(), parts), 0);
  return product;
}

struct Race {
  double strict_gflops;
  double parts_gflops;

  bool parts_win() const { return parts_gflops > kClearlyFaster * strict_gflops; }
};

Race race(int parts) {
  const std::vector<RaceSpeed> speeds =
      race_products({strict_product_nt,
                     [&](const auto& a, const auto& b) { return product_of_parts(a, b, parts); }});
  return {speeds[0].all, speeds[1].all};
}

const char* outcome_of(const Race& race) {
  if (!race.parts_win()) {
    return "; products stay strict fp32";
  }
  return parts_verdict.get().value_or(true)
             ? ""
             : "; not faster on another rank: products stay strict fp32";
}

std::string describe(MatmulPrecision precision, const Race& race) {
  return fmt::format("{} (measured: fp32 {:.0f}, {} {:.0f} GFLOP/s{})", to_string(precision),
                     race.strict_gflops, to_string(precision), race.parts_gflops, outcome_of(race));
}

Race raced_and_logged(MatmulPrecision precision) {
  const Race result = race(parts_of(precision));
  log(result.parts_win() ? LogLevel::kInfo : LogLevel::kWarning, "products", "matmul precision {}",
      describe(precision, result));
  return result;
}

// Ranks that are threads wait for the first.
const Race& race_of(MatmulPrecision precision) {
  if (precision == MatmulPrecision::kHigh) {
    static const Race high = raced_and_logged(precision);
    return high;
  }
  static const Race medium = raced_and_logged(precision);
  return medium;
}

}  // namespace

std::string to_string(MatmulPrecision precision) {
  switch (precision) {
    case MatmulPrecision::kHighest:
      return "highest";
    case MatmulPrecision::kHigh:
      return "high";
    case MatmulPrecision::kMedium:
      return "medium";
    case MatmulPrecision::kHighAlways:
      return "high-always";
    case MatmulPrecision::kMediumAlways:
      return "medium-always";
  }
  fail(Code::kInvalidArgument, "no matmul precision has the number {}",
       static_cast<int>(precision));
}

void set_matmul_precision(MatmulPrecision precision) {
  chosen_precision.store(precision, std::memory_order_relaxed);
  parts_verdict.forget();
}

MatmulPrecision matmul_precision() { return chosen_precision.load(std::memory_order_relaxed); }

std::optional<bool> parts_are_faster() {
  const MatmulPrecision precision = matmul_precision();
  return must_be_faster(precision) ? std::optional(race_of(precision).parts_win()) : std::nullopt;
}

void settle_parts(bool are_faster) {
  const bool is_new = parts_verdict.settle(are_faster) != std::optional(are_faster);
  if (is_new && !are_faster && parts_are_faster().value_or(false)) {
    log(LogLevel::kWarning, "products", "matmul precision {}", describe_matmul_precision());
  }
}

int product_parts() {
  const MatmulPrecision precision = matmul_precision();
  const std::optional<bool> verdict = parts_verdict.get();
  const bool are_used = verdict ? *verdict : parts_are_faster().value_or(true);
  return are_used ? parts_of(precision) : 0;
}

bool is_for_parts(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();  // MKL's sizes
  return m >= kFewest && n >= kFewest && m <= kMost && n <= kMost && k <= kMost;
}

std::string describe_matmul_precision() {
  const MatmulPrecision precision = matmul_precision();
  return must_be_faster(precision) ? describe(precision, race_of(precision)) : to_string(precision);
}

}  // namespace fsdp2::nn
