// The MLPs of a mixture's experts, run as products of groups and one by one.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/nn/experts/grouped_mlps.h"
#include "core/nn/layers/tiled_mlp.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::nn {

struct ExpertShape {
  int64_t experts;
  int64_t hidden;
  int64_t inner;
};

using Mlps = std::vector<std::shared_ptr<GatedMlp>>;

inline Mlps random_mlps(const ExpertShape& shape, at::ScalarType dtype,
                        at::Device device = at::kCPU) {
  Mlps mlps;
  uint64_t seed = 100;
  for (int64_t i = 0; i < shape.experts; ++i) {
    mlps.push_back(std::make_shared<GatedMlp>("Expert", shape.hidden, shape.inner,
                                              /*has_bias=*/false, dtype));
    for (const at::Tensor& parameter : mlps.back()->parameters()) {
      const at::Tensor values = random_leaf(parameter.sizes(), seed++).detach() / 4;
      resize_storage(parameter, parameter.numel() * parameter.element_size());
      const at::NoGradGuard no_grad;
      parameter.copy_(values);
    }
    mlps.back()->to(device);
  }
  return mlps;
}

inline at::Tensor cotangent_of(const at::Tensor& y) {
  return random_leaf(y.sizes(), 8).detach().to(y.device(), y.scalar_type());
}

// The output, and the gradients of the rows and of all weights.
using FoundByMlps = std::vector<at::Tensor>;

inline FoundByMlps found_with(const Mlps& mlps, const at::Tensor& rows, const at::Tensor& y) {
  y.backward(cotangent_of(y));
  FoundByMlps found{y.detach(), take_gradient(rows)};
  for (const auto& mlp : mlps) {
    for (const at::Tensor& weight : mlp->parameters()) {
      found.push_back(take_gradient(weight));
    }
  }
  return found;
}

inline FoundByMlps run_grouped(const Mlps& mlps, const at::Tensor& rows,
                               const std::vector<int32_t>& ends) {
  return found_with(mlps, rows,
                    grouped_mlps(mlps, rows, at::tensor(ends, at::kInt).to(rows.device())));
}

inline FoundByMlps run_each(const Mlps& mlps, const at::Tensor& rows,
                            const std::vector<int32_t>& ends) {
  std::vector<at::Tensor> parts;
  int32_t begin = 0;
  for (size_t i = 0; i < mlps.size(); ++i) {
    parts.push_back((*mlps[i])(rows.narrow(0, begin, ends[i] - begin)));
    begin = ends[i];
  }
  return found_with(mlps, rows, at::cat(parts));
}

// Within `tolerance` of the largest element; where all are zero, the same.
inline void expect_alike(const FoundByMlps& found, const FoundByMlps& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const double largest = expected[i].to(at::kDouble).abs().max().item<double>();
    EXPECT_LE(max_difference(found[i], expected[i]), tolerance * largest) << i;
  }
}

}  // namespace fsdp2::nn
