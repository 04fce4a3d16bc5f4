#include "core/cuda/math/copy_rows_math.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/core/cuda/kernel_cases.h"

namespace fsdp2::cuda {
namespace {

using test::pointer;

// As the kernel does it, for tensors [rows,n].
template <typename From, typename To>
void copy_each(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to,
               const float* factor = nullptr) {
  RowCopies<From, To> copies;
  copies.factor = factor;
  for (size_t i = 0; i < from.size(); ++i) {
    copies.add({pointer<From>(from[i]), pointer<To>(to[i]), from[i].size(0), from[i].size(1),
                from[i].stride(0), to[i].stride(0)});
  }
  constexpr int kThreads = 32;
  for (int64_t chunk = 0; chunk < copies.table.chunks(); ++chunk) {
    for (int thread = 0; thread < kThreads; ++thread) {
      copy_chunk(copies, chunk, {thread, kThreads});
    }
  }
}

template <typename FromCase, typename ToCase>
void expect_copies() {
  std::vector<at::Tensor> from;
  std::vector<at::Tensor> to;
  std::vector<at::Tensor> memories;
  for (const int64_t n : {0, 1, 7, 8, 1000, 8192, 8193, 20000}) {
    for (const int64_t offset : {0, 3}) {
      from.push_back(test::random({3, n + 16}, static_cast<uint64_t>(n), FromCase::kDtype)
                         .narrow(1, offset, n));
      memories.push_back(at::zeros({3, n + 24}, ToCase::kDtype));
      to.push_back(memories.back().narrow(1, 8, n));
    }
  }
  copy_each<typename FromCase::Element, typename ToCase::Element>(from, to);
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_TRUE(to[i].equal(from[i].to(ToCase::kDtype))) << i;
    to[i].zero_();
    EXPECT_EQ(memories[i].abs().max().item().toFloat(), 0) << "beside tensor " << i;
  }
}

template <typename Case>
class CopyRowsMath : public ::testing::Test {};
TYPED_TEST_SUITE(CopyRowsMath, test::DtypeCases);

TYPED_TEST(CopyRowsMath, RoundsAsATenDoesAndWritesNothingElse) {
  expect_copies<TypeParam, test::InFloat>();
  expect_copies<TypeParam, test::InBFloat16>();
  expect_copies<TypeParam, test::InHalf>();
}

TYPED_TEST(CopyRowsMath, AFactorIsRoundedWithTheProductAlone) {
  using T = typename TypeParam::Element;
  constexpr float kFactor = 0.3F;
  const at::Tensor from = test::random({1, 8200}, 1, at::kFloat);
  const at::Tensor to = at::empty(from.sizes(), TypeParam::kDtype);
  copy_each<float, T>({from}, {to}, &kFactor);
  EXPECT_TRUE(to.equal((from * kFactor).to(TypeParam::kDtype)));
  copy_each<T, T>({to}, {to}, &kFactor);
  EXPECT_TRUE(to.equal(
      ((from * kFactor).to(TypeParam::kDtype).to(at::kFloat) * kFactor).to(TypeParam::kDtype)));
}

TYPED_TEST(CopyRowsMath, KeepsBitsOfOneDtypeAndWhatIsNotFinite) {
  using T = typename TypeParam::Element;
  const at::Tensor from = test::odd_numbers(TypeParam::kDtype).unsqueeze(0);
  const at::Tensor same = at::empty_like(from);
  copy_each<T, T>({from}, {same});
  EXPECT_TRUE(same.view(at::kByte).equal(from.view(at::kByte)));
  const at::Tensor narrow = at::empty(from.sizes(), at::kBFloat16);
  copy_each<T, c10::BFloat16>({from}, {narrow});
  EXPECT_TRUE(at::allclose(narrow.to(at::kFloat), from.to(at::kBFloat16).to(at::kFloat), 0, 0,
                           /*equal_nan=*/true));
}

}  // namespace
}  // namespace fsdp2::cuda
