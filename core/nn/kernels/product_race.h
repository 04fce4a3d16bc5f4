// Which of several ways to multiply matrices is the fastest on this CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <atomic>
#include <functional>
#include <optional>
#include <vector>

namespace fsdp2::nn {

// a [m,k] b [n,k] -> a b^T [m,n]
using ProductWay = std::function<at::Tensor(const at::Tensor& a, const at::Tensor& b)>;

// GFLOP/s of one way.
struct RaceSpeed {
  double rows;     // of the products with a result for each row of x: forward, and x's gradient
  double weights;  // of the weight's gradient, for which both operands are transposed
  double all;      // of the three together
};

// The speed of each, over the three products of a linear layer of medium size; a few tens of ms. By
// the time that this thread has a processor, so that other programs hardly disturb it. dtypes: of
// the operands that each is given, fp32 if there are none.
// A way's first use is not counted. One that takes more than a fraction of a second and many times
// as long as another one runs once behind it.
std::vector<RaceSpeed> race_products(const std::vector<ProductWay>& ways,
                                     const std::vector<at::ScalarType>& dtypes = {});

// A way that is usual is kept unless another one is faster by this factor: near a tie the noise of
// one measurement must not decide, or two runs on one machine would round differently.
constexpr double kClearlyFaster = 1.25;

// What the ranks of a process have made of a race together. Any thread may ask while another one
// settles it.
class RaceVerdict {
 public:
  // Nothing until it is settled.
  std::optional<bool> get() const {
    const int verdict = verdict_.load(std::memory_order_relaxed);
    return verdict == kNone ? std::nullopt : std::optional(verdict == 1);
  }
  // Returns what it was before.
  std::optional<bool> settle(bool verdict) {
    const int before = verdict_.exchange(verdict ? 1 : 0, std::memory_order_relaxed);
    return before == kNone ? std::nullopt : std::optional(before == 1);
  }
  void forget() { verdict_.store(kNone, std::memory_order_relaxed); }

 private:
  static constexpr int kNone = -1;
  std::atomic<int> verdict_{kNone};
};

}  // namespace fsdp2::nn
