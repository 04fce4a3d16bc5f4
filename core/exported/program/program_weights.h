// The parameters' values that an exported program's file has.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/exported/program/program_archive.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::exported {

class ProgramWeights final : public nn::ParameterSource {
 public:
  explicit ProgramWeights(std::shared_ptr<const ProgramArchive> archive)
      : archive_(std::move(archive)) {}

  bool contains(const std::string& name) const override;
  // Also kNotFound for a program that was exported without values.
  void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
            at::Tensor out) override;
  std::string mark_of(const std::string& name) const override {
    return archive_->mark_of(*archive_->find_weight(name));
  }

 private:
  const std::shared_ptr<const ProgramArchive> archive_;
};

}  // namespace fsdp2::exported
