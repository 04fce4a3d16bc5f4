// Full state dicts in .pth files: torch.save of a dict from names to tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/ckpt/state/planned_tensors.h"
#include "core/ckpt/torch/archive.h"
#include "core/ckpt/value/state_path.h"
#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

// Writes a .pth file that appears when it is complete; see AtomicFile.
//
//   PthWriter writer("fsdp_cpt100.pth", {{"a", at::kFloat, {2, 3}}, {"b", at::kLong, {4}}});
//   writer.append("a", a);
//   writer.append("b", b);
//   writer.finish();
class PthWriter {
 public:
  // A flat dict, as a model's state_dict() is; the plan's order is the dict's. kInvalidArgument for
  // a name twice.
  PthWriter(std::string path, std::vector<TensorSpec> plan);
  // Any tree; `plan` gives name (for messages), dtype and shape of its records in order.
  PthWriter(std::string path, const PythonValue& tree, std::vector<TensorSpec> plan);

  // The next tensor of the plan, on any device and in any layout. Errors: those of PlannedTensors.
  void append(const std::string& name, const at::Tensor& tensor);
  // Those of PlannedTensors if tensors are missing.
  void finish();

 private:
  AtomicFile file_;
  PlannedTensors planned_;
  TorchArchiveWriter archive_;
};

// A tensor somewhere in a tree.
struct PthTensor {
  std::string name;  // the path joined by dots: "model.layers.0.weight", "optim.param_groups.0.lr"
  StatePath path;
  const StoredTensor* tensor;  // lives as long as the tree
};

// All tensors in the dicts, lists and tuples of a tree, in its order.
std::vector<PthTensor> list_tensors(const PythonValue& tree);

}  // namespace fsdp2::ckpt
