#include "core/nn/kernels/product_race.h"

#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

#include <time.h>

#include <algorithm>

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

// The forward product of a linear layer and both gradients.
class LinearLayer {
 public:
  explicit LinearLayer(at::ScalarType dtype)
      : x_(ones(kRows, kIn, dtype)),
        weight_(ones(kOut, kIn, dtype)),
        dy_(ones(kRows, kOut, dtype)) {}

  // What a way loads or chooses at its first use, by a race of its own even, is not its speed.
  void use_first(const ProductWay& product) const { product(x_, weight_); }

  double seconds(const ProductWay& product) const {
    const double start = processor_seconds();
    product(x_, weight_);
    product(dy_, weight_.t());
    product(dy_.t(), x_.t());
    return std::max(kLeastSeconds, processor_seconds() - start);
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
std::vector<double> race_products(const std::vector<ProductWay>& ways,
                                  const std::vector<at::ScalarType>& dtypes) {
  const c10::AutoGradMode no_grad(false);
  std::vector<LinearLayer> layers;
  for (size_t i = 0; i < ways.size(); ++i) {
    layers.emplace_back(dtypes.empty() ? at::kFloat : dtypes.at(i));
  }
  std::vector<double> warm_up;
  for (size_t i = 0; i < ways.size(); ++i) {
    layers[i].use_first(ways[i]);
    warm_up.push_back(layers[i].seconds(ways[i]));
  }
  const double slow =
      std::max(kSlowSeconds, kHopeless * *std::min_element(warm_up.begin(), warm_up.end()));
  std::vector<double> best = warm_up;
  bool becomes_faster = true;
  for (int run = 0; run < kFewestRuns || (run < kMostRuns && becomes_faster); ++run) {
    becomes_faster = false;
    for (size_t i = 0; i < ways.size(); ++i) {
      const double seconds = warm_up[i] > slow ? warm_up[i] : layers[i].seconds(ways[i]);
      becomes_faster = becomes_faster || seconds < kSteady * best[i];
      best[i] = std::min(best[i], seconds);
    }
  }
  std::vector<double> gflops;
  for (const double seconds : best) {
    gflops.push_back(3 * 2.0 * kRows * kIn * kOut / seconds * 1e-9);
  }
  return gflops;
}

}  // namespace fsdp2::nn
