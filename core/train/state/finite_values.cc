#include "core/train/state/finite_values.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>
#include <string>

#include "core/base/error.h"
#include "core/comm/team.h"

namespace fsdp2::train {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

bool is_finite(const ckpt::StateTensor& tensor) {
  return at::isfinite(tensor.local).all().item<bool>();
}

// Minus the index of this rank's first tensor that is not finite: the largest over all ranks is the
// first of all.
double first_bad(const ckpt::StateDict& state) {
  const auto bad = std::find_if_not(state.tensors.begin(), state.tensors.end(), is_finite);
  return bad == state.tensors.end() ? kNone : -static_cast<double>(bad - state.tensors.begin());
}

}  // namespace

void check_finite(const TrainingObjects& objects) {
  const std::string& cause = objects.root->tree().cause_of_bad_values();
  // A rank may have updated its shards by itself.
  const double own = cause.empty() ? kNone : first_bad(state_to_save(objects));
  const at::Tensor first = at::tensor({own}, at::device(at::kCPU).dtype(at::kDouble));
  objects.root->mesh().team().control().all_reduce(first, ReduceOp::kMax).wait();
  const double number = *first.const_data_ptr<double>();
  if (number == kNone) {
    if (objects.optimizer != nullptr) {  // otherwise its state has not been looked at
      objects.root->tree().set_cause_of_bad_values("");
    }
    return;
  }
  fail(Code::kNotFinite,
       "{} has been infinite or NaN since {}: it is not saved, so that no good checkpoint gives "
       "way to it; go on from the last good one, or save with options.allow_not_finite",
       state_to_save(objects).tensors[static_cast<size_t>(-number)].name,
       cause.empty() ? "an update on another rank" : cause);
}

}  // namespace fsdp2::train
