// Whole tensors, one at a time, into the formats that hold whole tensors: memory stays bounded by
// the largest.
//
//   auto writer = make_full_writer(path, CheckpointFormat::kSafetensors, plan, {});
//   for (const TensorSpec& spec : writer->plan()) {
//     writer->append(spec.name, tensor_of(spec.name));
//   }
//   writer->finish();
//
// What is written appears when it is complete.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/ckpt/formats/checkpoint_format.h"
#include "core/ckpt/formats/model_files.h"
#include "core/ckpt/value/python_value.h"
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

// format: kSafetensors, kPth (a flat dict) or kHuggingFaceDirectory (which is made, or replaced as
// a whole); others are kUnsupported. Errors: those of the format's writer.
std::unique_ptr<FullWriter> make_full_writer(const std::string& path, CheckpointFormat format,
                                             std::vector<TensorSpec> plan,
                                             const FullWriterOptions& options);

// The order of such a writer's plan(), for ranks that do not write.
std::vector<TensorSpec> order_of_writing(std::vector<TensorSpec> plan, CheckpointFormat format,
                                         const FullWriterOptions& options);

// A .pth file with any tree: `plan` describes its tensors in the order of their storage keys.
std::unique_ptr<FullWriter> make_tree_writer(const std::string& path, const PythonValue& tree,
                                             std::vector<TensorSpec> plan);

}  // namespace fsdp2::ckpt
