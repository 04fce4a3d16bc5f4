#include "core/ckpt/state/planned_tensors.h"

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

void PlannedTensors::check_next(const std::string& name, const at::Tensor& tensor) const {
  const std::string shown = printable_name(name);
  FSDP2_CHECK(next_ < plan_.size(), Code::kInvalidArgument,
              "{}: tensor {} comes after all {} planned tensors", file_, shown, plan_.size());
  const TensorSpec& spec = plan_[next_];
  FSDP2_CHECK(name == spec.name, Code::kInvalidArgument,
              "{}: tensor {} was appended where the plan has {}", file_, shown,
              printable_name(spec.name));
  FSDP2_CHECK(tensor.defined() && tensor.layout() == c10::kStrided, Code::kInvalidArgument,
              "{}: tensor {}: expected a strided tensor", file_, shown);
  FSDP2_CHECK(tensor.scalar_type() == spec.dtype && tensor.sizes() == at::IntArrayRef(spec.shape),
              Code::kInvalidArgument, "{}: tensor {}: the plan says {} [{}], the tensor is {} [{}]",
              file_, shown, c10::toString(spec.dtype), fmt::join(spec.shape, ", "),
              c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  FSDP2_CHECK(tensor.numel() == 0 || tensor.storage().nbytes() > 0, Code::kWrongState,
              "{}: tensor {} has no memory (deferred, or freed after use)", file_, shown);
}

void PlannedTensors::check_complete() const {
  FSDP2_CHECK(next_ == plan_.size(), Code::kWrongState,
              "{}: finished after {} of {} tensors; {} is missing", file_, next_, plan_.size(),
              printable_name(plan_[next_].name));
}

}  // namespace fsdp2::ckpt
