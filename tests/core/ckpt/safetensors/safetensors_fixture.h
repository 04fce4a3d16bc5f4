// Safetensors files for tests: put together by hand, right or wrong, or saved from tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/ckpt/safetensors/safetensors_file.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {

inline std::string little_endian(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  }
  return bytes;
}

// Header length, header, data.
inline std::string safetensors_text(const std::string& header, const std::string& data) {
  return little_endian(header.size()) + header + data;
}

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

class SafetensorsFixture : public FileTest {
 protected:
  // Writes x.safetensors; returns its path.
  std::string save(const Tensors& tensors) const {
    std::vector<TensorSpec> plan;
    for (const auto& [name, tensor] : tensors) {
      plan.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
    }
    SafetensorsWriter writer(path("x.safetensors"), plan);
    for (const auto& [name, tensor] : tensors) {
      writer.append(name, tensor);
    }
    writer.finish();
    return path("x.safetensors");
  }

  // Its elements, row-major.
  static std::string bytes_of(const at::Tensor& tensor) {
    const at::Tensor whole = tensor.contiguous();
    return {static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()};
  }
};

}  // namespace fsdp2::ckpt
