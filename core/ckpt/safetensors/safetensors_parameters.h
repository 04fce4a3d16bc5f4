// One safetensors file as a source of parameter values.
#pragma once

#include <string>

#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::ckpt {

class SafetensorsParameters : public nn::ParameterSource {
 public:
  explicit SafetensorsParameters(std::string path) : file_(std::move(path)) {}

  bool contains(const std::string& name) const override { return file_.find(name) != nullptr; }
  void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
            at::Tensor out) override;

 private:
  SafetensorsFile file_;
};

}  // namespace fsdp2::ckpt
