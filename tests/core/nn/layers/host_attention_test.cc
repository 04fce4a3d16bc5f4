#include "core/nn/layers/host_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/nn/kernels/blocked_attention.h"
#include "core/nn/kernels/cpu_vectors.h"
#include "core/nn/kernels/widened_product.h"
#include "core/nn/layers/attend.h"
#include "core/nn/seeded_init.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::nn {
namespace {

using Attended = std::array<at::Tensor, 4>;

struct AttentionSizes {
  int64_t batch;
  int64_t length;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
};

using Attend = std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>;

// Results and gradients of inputs that bf16 can hold, so that they are the same in each dtype.
Attended attended(const AttentionSizes& sizes, at::ScalarType dtype, const Attend& attend) {
  const auto leaf = [&](int64_t heads, uint64_t seed) {
    return random_leaf({sizes.batch, sizes.length, heads, sizes.head_dim}, seed, at::kBFloat16)
        .detach()
        .to(dtype)
        .requires_grad_(true);
  };
  const at::Tensor q = leaf(sizes.heads, 1);
  const at::Tensor k = leaf(sizes.kv_heads, 2);
  const at::Tensor v = leaf(sizes.kv_heads, 3);
  const at::Tensor out = attend(q, k, v);
  out.backward(leaf(sizes.heads, 4).detach());
  return {out.detach().to(at::kDouble), take_gradient(q), take_gradient(k), take_gradient(v)};
}

Attend of_libtorch(bool is_causal, double scale) {
  return [=](const auto& q, const auto& k, const auto& v) {
    return at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                            {}, 0.0, is_causal, scale, q.size(2) != k.size(2))
        .transpose(1, 2);
  };
}

using HostAttention = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool,
                                     std::optional<double>);

void expect_as_close_to_double_as_libtorchs_own(HostAttention attention, at::ScalarType dtype) {
  for (const AttentionSizes& sizes : std::vector<AttentionSizes>{{2, 75, 4, 4, 16},
                                                                 {1, 130, 6, 2, 24},
                                                                 {1, 600, 2, 1, 64},
                                                                 {1, 1100, 1, 1, 33},
                                                                 {1, 700, 2, 1, 96},
                                                                 {3, 1, 2, 2, 8}}) {
    for (const bool is_causal : {true, false}) {
      const double scale = 0.2;
      const Attended exact = attended(sizes, at::kDouble, of_libtorch(is_causal, scale));
      const Attended libtorchs = attended(sizes, dtype, of_libtorch(is_causal, scale));
      const Attended ours =
          attended(sizes, dtype, [&](const auto& q, const auto& k, const auto& v) {
            return attention(q, k, v, is_causal, scale);
          });
      // In fp32 each rounds as the order of its sums has it.
      const double allowed = dtype == at::kFloat ? 3 : 1.1;
      for (size_t i = 0; i < exact.size(); ++i) {
        // A gradient that is 0, as those of q and k over one position, has no scale of its own.
        EXPECT_LE(max_difference(ours[i], exact[i]),
                  allowed * max_difference(libtorchs[i], exact[i]) + 1e-6)
            << "tensor " << i << ", length " << sizes.length << (is_causal ? ", causal" : "");
      }
    }
  }
}

TEST(WidenedAttention, IsAtLeastAsCloseToDoubleAsLibTorchsOwn) {
  expect_as_close_to_double_as_libtorchs_own(widened_attention, at::kBFloat16);
}

class BlockedAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_kernels::has_blocked_attention()) {
      GTEST_SKIP() << "LibTorch has no small oneDNN products here";
    }
  }
};

TEST_F(BlockedAttention, IsAsCloseToDoubleAsLibTorchsOwn) {
  expect_as_close_to_double_as_libtorchs_own(blocked_attention, at::kFloat);
  expect_as_close_to_double_as_libtorchs_own(blocked_attention, at::kBFloat16);
}

TEST_F(BlockedAttention, TakesTensorsThatLieInOthers) {
  const c10::NoGradGuard no_grad;
  const at::Tensor all = random_leaf({2, 140, 8, 24}, 1);  // q, k and v of each position together
  const at::Tensor q = all.narrow(2, 0, 4);
  const at::Tensor k = all.narrow(2, 4, 2);
  const at::Tensor v = all.narrow(2, 6, 2);
  const at::Tensor dense =
      blocked_attention(q.contiguous(), k.contiguous(), v.contiguous(), true, {});
  EXPECT_TRUE(blocked_attention(q, k, v, true, {}).equal(dense));
  // Elements of a row apart from each other, and heads before positions.
  const at::Tensor apart = q.transpose(1, 3).contiguous().transpose(1, 3);
  const at::Tensor by_head = k.transpose(1, 2).contiguous().transpose(1, 2);
  EXPECT_TRUE(blocked_attention(apart, by_head, v, true, {}).equal(dense));
}

TEST_F(BlockedAttention, ComputesTheSameBitsWithAnyNumberOfThreads) {
  const auto run = [](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    const Attended result =
        attended({2, 200, 4, 2, 16}, at::kFloat, [](const auto& q, const auto& k, const auto& v) {
          return blocked_attention(q, k, v, true, {});
        });
    at::set_num_threads(before);
    return result;
  };
  const Attended one = run(1);
  const Attended two = run(2);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(one[i].equal(two[i])) << "tensor " << i;
  }
}

int64_t resident_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

// oneDNN keeps what it has compiled for each set of sizes, so there must be few of them.
TEST_F(BlockedAttention, CompilesNothingForOtherLengths) {
  const auto run = [](int64_t length) {
    attended({1, length, 2, 1, 16}, at::kFloat, [](const auto& q, const auto& k, const auto& v) {
      return blocked_attention(q, k, v, true, {});
    });
  };
  for (int64_t length = 1030; length > 770; length -= 4) {
    run(length);
  }
  const int64_t before = resident_bytes();
  for (int64_t length = 1029; length > 770; length -= 4) {
    run(length);
  }
  EXPECT_LT(resident_bytes() - before, int64_t{2} << 20);
}

TEST_F(BlockedAttention, LetsNoQuerySeeWhatComesLater) {
  const c10::NoGradGuard no_grad;
  const at::Tensor q = random_leaf({1, 300, 2, 16}, 1).detach();
  const at::Tensor v = random_leaf({1, 300, 2, 16}, 2).detach();
  const at::Tensor before = blocked_attention(q, q, v, true, {});
  const at::Tensor changed_q = q.clone();
  const at::Tensor changed_v = v.clone();
  changed_q.narrow(1, 150, 150).mul_(3);
  changed_v.narrow(1, 150, 150).add_(1);
  const at::Tensor after = blocked_attention(changed_q, changed_q, changed_v, true, {});
  EXPECT_TRUE(after.narrow(1, 0, 150).equal(before.narrow(1, 0, 150)));
  EXPECT_FALSE(after.narrow(1, 150, 150).equal(before.narrow(1, 150, 150)));
}

TEST_F(BlockedAttention, PassesOnWhatIsNotFinite) {
  for (const double odd :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const at::Tensor q = random_leaf({1, 140, 1, 16}, 1).detach();
    q[0][130][0][3] = odd;
    q.requires_grad_(true);
    const at::Tensor k = random_leaf({1, 140, 1, 16}, 2);
    const at::Tensor v = random_leaf({1, 140, 1, 16}, 3);
    const at::Tensor out = blocked_attention(q, k, v, true, {});
    EXPECT_TRUE(out.detach().narrow(1, 0, 130).isfinite().all().item<bool>());
    EXPECT_TRUE(out.detach()[0][130].isnan().all().item<bool>());
    out.sum().backward();
    EXPECT_FALSE(k.grad().isfinite().all().item<bool>());
  }
}

TEST(HostAttention, IsUsedWhereItIsFaster) {
  const c10::NoGradGuard no_grad;
  const at::Tensor q = random_leaf({1, 256, 4, 16}, 1, at::kBFloat16);
  set_bf16_products(Bf16Products::kWidened);
  EXPECT_TRUE(is_for_widened_attention(q, q));
  EXPECT_FALSE(is_for_widened_attention(q.to(at::kFloat), q.to(at::kFloat)));
  EXPECT_FALSE(is_for_widened_attention(q.narrow(1, 0, 8), q.narrow(1, 0, 8)));
  const auto of_host = is_for_blocked_attention(q, q, true) ? blocked_attention : widened_attention;
  EXPECT_TRUE(attend(q, q, q, {}, {}, {}).equal(of_host(q, q, q, true, {})));
  set_bf16_products(Bf16Products::kNative);
  EXPECT_FALSE(is_for_widened_attention(q, q));
  set_bf16_products(Bf16Products::kAuto);
}

TEST_F(BlockedAttention, RefusesShapesThatDoNotFit) {
  const at::Tensor q = random_leaf({1, 64, 4, 16}, 1);
  const auto expect_refusal = [&](const at::Tensor& k, const at::Tensor& v) {
    EXPECT_THROW(blocked_attention(q, k, v, true, {}), Error);
  };
  expect_refusal(q.narrow(2, 0, 3), q.narrow(2, 0, 3));
  expect_refusal(q, q.narrow(3, 0, 8));
  expect_refusal(q.narrow(1, 0, 32), q.narrow(1, 0, 32));
}

TEST_F(BlockedAttention, IsUsedForLargeTensorsOfCpusThatPreferIt) {
  const c10::NoGradGuard no_grad;
  const at::Tensor q = random_leaf({1, 256, 4, 16}, 1);
  const at::Tensor one_head = random_leaf({1, 1024, 1, 16}, 2);
  const int before = at::get_num_threads();
  for (const bool is_causal : {true, false}) {
    at::set_num_threads(1);
    const bool is_preferred = cpu_kernels::prefers_blocked_attention(at::kFloat, is_causal);
    const auto is_blocked = [&](const at::Tensor& queries, const at::Tensor& keys) {
      return is_for_blocked_attention(queries, keys, is_causal);
    };
    EXPECT_EQ(is_blocked(q, q), is_preferred);
    EXPECT_EQ(is_blocked(q.to(at::kMeta), q.to(at::kMeta)), is_preferred);
    EXPECT_FALSE(is_blocked(q.narrow(1, 0, 8), q.narrow(1, 0, 8)));
    EXPECT_FALSE(is_blocked(q, q.narrow(1, 0, 200)));
    ScoreRules rules;
    rules.both_ways = !is_causal;
    EXPECT_EQ(attend(q, q, q, {}, {}, rules).equal(blocked_attention(q, q, q, is_causal, {})),
              is_preferred);
    // One task keeps one thread busy, and not two.
    EXPECT_EQ(is_blocked(one_head, one_head), is_preferred);
    at::set_num_threads(2);
    EXPECT_FALSE(is_blocked(one_head, one_head));
    EXPECT_EQ(is_blocked(q, q), is_preferred);
    at::set_num_threads(before);
    EXPECT_FALSE(is_blocked(q.to(at::kDouble), q.to(at::kDouble)));
  }
}

TEST_F(BlockedAttention, IsPreferredForCausalAttentionWhereBothEnginesHaveAvx2) {
  if (!engines_have_avx2()) {
    GTEST_SKIP() << "needs a CPU with AVX2 and without AVX-512";
  }
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    EXPECT_TRUE(cpu_kernels::prefers_blocked_attention(dtype, /*is_causal=*/true));
    EXPECT_FALSE(cpu_kernels::prefers_blocked_attention(dtype, /*is_causal=*/false));
  }
}

}  // namespace
}  // namespace fsdp2::nn
