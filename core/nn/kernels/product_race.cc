#include "core/nn/kernels/product_race.h"

#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

#include <time.h>

#include <algorithm>
#include <limits>

namespace fsdp2::nn {

namespace {

constexpr int64_t kRows = 256;
constexpr int64_t kIn = 512;
constexpr int64_t kOut = 768;
constexpr int kFewestRuns = 2;  // behind one that warms up
constexpr int kMostRuns = 4;
constexpr double kSteady = 0.97;        // a run that takes less of the best one before is faster
constexpr double kSlowSeconds = 0.1;    // of a run; one that warms up takes less
constexpr double kHopeless = 8;         // times slower than the best
constexpr double kLeastSeconds = 1e-6;  // a coarse clock may not move at all

// In a product of several threads this one computes or waits to the end. It is counted as long as
// it waits by spinning; what threads that sleep (OMP_WAIT_POLICY=passive) wait is not.
double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct RunSeconds {
  double rows;
  double weights;

  double all() const { return rows + weights; }
};

RunSeconds faster_of(const RunSeconds& one, const RunSeconds& other) {
  return {std::min(one.rows, other.rows), std::min(one.weights, other.weights)};
}

// The forward product of a linear layer and both gradients.
class LinearLayer {
 public:
  explicit LinearLayer(at::ScalarType dtype)
      : x_(ones(kRows, kIn, dtype)),
        weight_(ones(kOut, kIn, dtype)),
        dy_(ones(kRows, kOut, dtype)) {}

  // What a way loads or chooses at its first use, by a race of its own even, is not its speed.
  void use_first(const ProductWay& product) const { product(x_, weight_); }

  RunSeconds seconds(const ProductWay& product) const {
    const double start = processor_seconds();
    product(x_, weight_);
    product(dy_, weight_.t());
    const double middle = processor_seconds();
    product(dy_.t(), x_.t());
    return {std::max(kLeastSeconds, middle - start),
            std::max(kLeastSeconds, processor_seconds() - middle)};
  }

 private:
  static at::Tensor ones(int64_t rows, int64_t columns, at::ScalarType dtype) {
    return at::ones({rows, columns}, at::device(at::kCPU).dtype(dtype));
  }

  at::Tensor x_;
  at::Tensor weight_;
  at::Tensor dy_;
};

}  // namespace

// In turns, so that a passing disturbance hits all; the best run of each counts. Ends when no way
// becomes faster.
std::vector<RaceSpeed> race_products(const std::vector<ProductWay>& ways,
                                     const std::vector<at::ScalarType>& dtypes) {
  const c10::AutoGradMode no_grad(false);
  std::vector<LinearLayer> layers;
  for (size_t i = 0; i < ways.size(); ++i) {
    layers.emplace_back(dtypes.empty() ? at::kFloat : dtypes.at(i));
  }
  std::vector<RunSeconds> best;  // each product's, of several runs
  double fastest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < ways.size(); ++i) {
    layers[i].use_first(ways[i]);
    best.push_back(layers[i].seconds(ways[i]));
    fastest = std::min(fastest, best[i].all());
  }
  const double slow = std::max(kSlowSeconds, kHopeless * fastest);
  std::vector<bool> is_slow;
  for (const RunSeconds& warm_up : best) {
    is_slow.push_back(warm_up.all() > slow);
  }
  bool becomes_faster = true;
  for (int run = 0; run < kFewestRuns || (run < kMostRuns && becomes_faster); ++run) {
    becomes_faster = false;
    for (size_t i = 0; i < ways.size(); ++i) {
      if (!is_slow[i]) {
        const RunSeconds seconds = layers[i].seconds(ways[i]);
        becomes_faster = becomes_faster || seconds.all() < kSteady * best[i].all();
        best[i] = faster_of(best[i], seconds);
      }
    }
  }
  constexpr double kGflop = 2.0 * kRows * kIn * kOut * 1e-9;  // of a product
  std::vector<RaceSpeed> speeds;
  for (const RunSeconds& seconds : best) {
    speeds.push_back(
        {2 * kGflop / seconds.rows, kGflop / seconds.weights, 3 * kGflop / seconds.all()});
  }
  return speeds;
}

}  // namespace fsdp2::nn
