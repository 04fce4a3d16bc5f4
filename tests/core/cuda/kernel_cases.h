// What the tests of the kernels' arithmetic on the host have in common: dtypes with their
// tolerances, and numbers to try.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace fsdp2::cuda::test {

// The tolerance is relative to the largest element: a few roundings in fp32, else one of the dtype.
struct InFloat {
  using Element = float;
  static constexpr at::ScalarType kDtype = at::kFloat;
  static constexpr double kTolerance = 2e-6;
};
struct InBFloat16 {
  using Element = c10::BFloat16;
  static constexpr at::ScalarType kDtype = at::kBFloat16;
  static constexpr double kTolerance = 4e-3;
};
struct InHalf {
  using Element = c10::Half;
  static constexpr at::ScalarType kDtype = at::kHalf;
  static constexpr double kTolerance = 6e-4;
};
using DtypeCases = ::testing::Types<InFloat, InBFloat16, InHalf>;

inline at::Tensor random(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kFloat).to(dtype);
}

// What rounding, exponentials and comparisons stumble over; as many as fill packs and leave a rest.
inline at::Tensor odd_numbers(at::ScalarType dtype) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  return at::tensor({0.0F, -0.0F, 1.0F, -1.0F, kInfinity, -kInfinity, kNan, 88.0F, -88.0F, 100.0F,
                     -100.0F, 6e4F, -6e4F, 1e-7F, -1e-7F, 20.0F, -20.0F, 1e-3F, 0.5F},
                    at::device(at::kCPU).dtype(at::kFloat))
      .to(dtype);
}

// Memory that the kernels' functions may write, as a device's pointers are.
template <typename T>
T* pointer(const at::Tensor& tensor) {
  return tensor.mutable_data_ptr<T>();
}

}  // namespace fsdp2::cuda::test
