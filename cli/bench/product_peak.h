// How fast the CPUs multiply matrices: what a training step is held against.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp2::cli {

struct ProductPeak {
  int64_t size = 0;  // of the square matrices
  std::string dtype;
  int64_t threads = 0;
  double tflops = 0.0;  // the best of several products, each 2 x size^3 operations
};

// dtype: fp32, bf16 or fp16. Throws Failure.
ProductPeak measure_product_peak(int64_t size, const std::string& dtype, int64_t threads);

}  // namespace fsdp2::cli
