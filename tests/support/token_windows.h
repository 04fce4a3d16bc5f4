// Windows of a token file, read apart from the code under test.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace fsdp2 {

// The first `count` windows of length + 1 tokens (neighbours share one) of a file of 16-bit tokens:
// [count, length + 1] int64.
at::Tensor read_windows(const std::string& path, int64_t count, int64_t length);

}  // namespace fsdp2
