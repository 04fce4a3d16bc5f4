// The search for the largest micro batch, over memory that a formula gives.
#include "cli/fit/search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace fsdp2::cli {
namespace {

using Kind = Outcome::Kind;

struct Machine {
  double budget;
  std::function<double(int64_t)> memory;  // of a micro batch
  int trials = 0;

  Fit search(int64_t most = 1 << 20) {
    return largest_fit(
        [this](int64_t n) {
          ++trials;
          const double peak = memory(n);
          return peak <= budget ? Outcome{Kind::kFits, peak, ""}
                                : Outcome{Kind::kTooLarge, peak, "too large"};
        },
        budget, most);
  }
};

TEST(LargestFit, IsFoundWhereMemoryGrowsWithTheWindows) {
  for (const int64_t answer : {1, 2, 3, 5, 8, 17, 31, 32}) {
    Machine machine{100.0 + 10.0 * static_cast<double>(answer) + 5,
                    [](int64_t n) { return 100.0 + 10.0 * static_cast<double>(n); }};
    const Fit fit = machine.search();
    EXPECT_EQ(fit.micro_batch, answer);
    EXPECT_EQ(fit.beyond_batch, answer + 1);
    EXPECT_EQ(fit.peak_bytes, machine.memory(answer));
    EXPECT_LE(machine.trials, 8) << answer;
  }
}

TEST(LargestFit, OfManyWindowsIsWithinOnePartIn32) {
  Machine machine{1e6, [](int64_t n) { return 100.0 + 7.0 * static_cast<double>(n); }};
  const Fit fit = machine.search();
  EXPECT_LE(machine.memory(fit.micro_batch), machine.budget);
  EXPECT_GT(machine.memory(fit.micro_batch + fit.micro_batch / 32 + 1), machine.budget);
  EXPECT_LE(machine.trials, 16);
}

TEST(LargestFit, DoesNotDependOnMemoryBeingALine) {
  for (const double power : {0.3, 2.0, 3.0}) {
    Machine machine{50.0 * std::pow(21.5, power),
                    [power](int64_t n) { return 50.0 * std::pow(n, power); }};
    EXPECT_EQ(machine.search().micro_batch, 21) << power;
    EXPECT_LE(machine.trials, 14) << power;
  }
  Machine stairs{4.5, [](int64_t n) { return std::floor(static_cast<double>(n) / 6.0); }};
  EXPECT_EQ(stairs.search().micro_batch, 29);
}

TEST(LargestFit, WithoutAKnownBudgetIsFoundByTrying) {
  int trials = 0;
  const Fit fit = largest_fit(
      [&](int64_t n) {
        ++trials;
        return n <= 13 ? Outcome{Kind::kFits, 10.0 * static_cast<double>(n), ""}
                       : Outcome{Kind::kTooLarge, 0, "CUDA out of memory"};
      },
      std::numeric_limits<double>::infinity(), 1000);
  EXPECT_EQ(fit.micro_batch, 13);
  EXPECT_EQ(fit.beyond_batch, 14);
  EXPECT_LE(trials, 10);
}

TEST(LargestFit, StopsAtTheMost) {
  Machine machine{1e9, [](int64_t) { return 1.0; }};
  const Fit fit = machine.search(100);
  EXPECT_EQ(fit.micro_batch, 100);
  EXPECT_EQ(fit.beyond.kind, Kind::kFits);
}

TEST(LargestFit, IsNoneWhereNotEvenOneFits) {
  Machine machine{1, [](int64_t) { return 2.0; }};
  const Fit fit = machine.search();
  EXPECT_EQ(fit.micro_batch, 0);
  EXPECT_EQ(fit.beyond.kind, Kind::kTooLarge);
  EXPECT_EQ(machine.trials, 1);
}

}  // namespace
}  // namespace fsdp2::cli
