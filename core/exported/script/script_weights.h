// The parameters' values that a TorchScript file has.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/exported/script/script_archive.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::exported {

class ScriptWeights final : public nn::ParameterSource {
 public:
  explicit ScriptWeights(std::shared_ptr<const ScriptArchive> archive)
      : archive_(std::move(archive)) {}

  // name: dotted. REQUIRES: the tensor is one of the archive's root.
  void add(const std::string& name, const ckpt::StoredTensor& tensor) {
    tensors_.emplace(name, tensor);
  }

  bool contains(const std::string& name) const override { return tensors_.count(name) == 1; }
  void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
            at::Tensor out) override;
  std::string mark_of(const std::string& name) const override {
    return archive_->mark_of(tensors_.at(name));
  }

 private:
  const std::shared_ptr<const ScriptArchive> archive_;
  std::map<std::string, ckpt::StoredTensor> tensors_;
};

}  // namespace fsdp2::exported
