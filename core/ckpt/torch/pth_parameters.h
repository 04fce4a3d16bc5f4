// The tensors of a .pth file as a source of parameter values.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "core/ckpt/torch/archive.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::ckpt {

// `prefix` is taken off the tensors' names and tensors without it are left out: "model." for the
// model of {"model": ..., "optim": ...}.
class PthParameters : public nn::ParameterSource {
 public:
  explicit PthParameters(const std::string& path, const std::string& prefix = "");
  PthParameters(const PthParameters&) = delete;
  PthParameters& operator=(const PthParameters&) = delete;

  const TorchArchive& archive() const { return archive_; }
  // Sorted.
  std::vector<std::string> names() const;
  // nullptr if there is none of that name.
  const StoredTensor* find(const std::string& name) const;

  bool contains(const std::string& name) const override { return find(name) != nullptr; }
  void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
            at::Tensor out) override;

 private:
  TorchArchive archive_;
  std::unordered_map<std::string, const StoredTensor*> tensors_;
};

}  // namespace fsdp2::ckpt
