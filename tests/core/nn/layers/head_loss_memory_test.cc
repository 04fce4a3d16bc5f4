// What the loss in chunks holds, beside the plain one.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "core/nn/kernels/linear_product.h"
#include "core/nn/layers/head_loss.h"
#include "tests/core/nn/closeness.h"
#include "tests/core/nn/live_bytes.h"

namespace fsdp2::nn {
namespace {

constexpr int64_t kVocabulary = 151936;  // Qwen's
constexpr int64_t kTokens = 4096;
constexpr int64_t kWidth = 4;
constexpr int64_t kLogitBytes = kVocabulary * int64_t{sizeof(float)};  // of a token

struct Head {
  explicit Head(int64_t tokens)
      : hidden(random_leaf({tokens, kWidth}, 1)),
        weight(random_leaf({kVocabulary, kWidth}, 2)),
        labels((at::arange(tokens) * 7919).remainder(kVocabulary)) {}
  at::Tensor hidden, weight, labels;
};

// With its gradients.
template <typename Loss>
int64_t peak_of(const Loss& loss) {
  const int64_t before = live_bytes();
  const PeakBytes peak;
  loss().backward();
  return peak.get() - before;
}

class HeadLossMemory : public ::testing::Test {
 protected:
  HeadLossMemory() {
    set_product_engine(ProductEngine::kMkl);  // oneDNN wants LibTorch's own allocator
    live_bytes();
  }
};

// Measured with few tokens, as the plain loss's memory is in proportion to them.
TEST_F(HeadLossMemory, IsUnderAQuarterOfThePlainLosss) {
  constexpr int64_t kFew = 64;
  const Head few(kFew);
  const int64_t plain =
      peak_of(
          [&] { return at::cross_entropy_loss(at::linear(few.hidden, few.weight), few.labels); }) /
      kFew * kTokens;
  EXPECT_GE(plain, 2 * kTokens * kLogitBytes);  // logits and their gradients, at least
  const Head head(kTokens);
  for (const int64_t chunk : {0, 1024}) {
    HeadLossOptions options;
    options.chunk_rows = chunk;
    const int64_t chunked =
        peak_of([&] { return head_loss(head.hidden, head.weight, head.labels, options); });
    RecordProperty("chunk_" + std::to_string(chunk) + "_of_plain",
                   std::to_string(static_cast<double>(chunked) / static_cast<double>(plain)));
    EXPECT_LT(chunked * 4, plain) << chunk;
    EXPECT_GT(chunked, (chunk > 0 ? chunk : 16) * kLogitBytes) << chunk;
  }
}

}  // namespace
}  // namespace fsdp2::nn
