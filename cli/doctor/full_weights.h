// Two files of weights, compared.
#pragma once

#include <string>

namespace fsdp2::cli {

struct WeightDifference {
  double distance = 0;  // L2, over all numbers of all tensors
  double largest = 0;
  std::string where;  // the tensor with the largest
};

// Both are safetensors in fp32 with the same tensors. Throws std::runtime_error, which says what is
// wrong.
WeightDifference compare_weights(const std::string& one, const std::string& other);

}  // namespace fsdp2::cli
