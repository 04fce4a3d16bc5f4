// Whole tensors, one at a time, into a format that holds whole tensors: memory stays bounded by the
// largest. Each format has its own; formats/make_full_writer.h makes the one for a format.
//
//   for (const TensorSpec& spec : writer->plan()) {
//     writer->append(spec.name, tensor_of(spec.name));
//   }
//   writer->finish();
//
// What is written appears when it is complete.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

class FullWriter {
 public:
  virtual ~FullWriter() = default;

  // In the order in which `append` takes them; each name once.
  const std::vector<TensorSpec>& plan() const { return plan_; }
  virtual void append(const std::string& name, const at::Tensor& tensor) = 0;
  virtual void finish() = 0;

 protected:
  explicit FullWriter(std::vector<TensorSpec> plan) : plan_(std::move(plan)) {}

 private:
  std::vector<TensorSpec> plan_;
};

}  // namespace fsdp2::ckpt
