// Small functions as segments, and what their tests compare.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/nn/recompute/checkpoint_segment.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::nn {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w)>;

inline constexpr int64_t kSize = 8;

// f(x, w) as a segment. `runs` counts how often it starts.
inline at::Tensor checkpointed(const Function& f, const at::Tensor& x, const at::Tensor& w,
                               int* runs = nullptr, const std::string& name = "the segment") {
  const auto body = [f, w, runs](const Values& inputs) -> c10::IValue {
    if (runs != nullptr) {
      ++*runs;
    }
    return f(inputs[0].toTensor(), w);
  };
  return run_as_segment(name, body, {x}).toTensor();
}

inline void expect_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i], b[i]))
        << "value " << i << " differs by " << max_difference(a[i], b[i]);
  }
}

inline at::Tensor tanh_layer(const at::Tensor& x, const at::Tensor& w) {
  return at::linear(x, w).tanh();
}

inline at::Tensor leaf(uint64_t seed) { return random_leaf({kSize, kSize}, seed); }

// Gradients of a chain of tanh layers, x -> tanh(x w^T) -> ..., each its own segment or not.
inline at::Tensor chain(at::Tensor x, const at::Tensor& w, int layers, bool segments,
                        int* runs = nullptr) {
  for (int i = 0; i < layers; ++i) {
    x = segments ? checkpointed(tanh_layer, x, w, runs) : tanh_layer(x, w);
  }
  return x;
}

}  // namespace fsdp2::nn
