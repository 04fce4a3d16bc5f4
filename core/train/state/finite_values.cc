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
  if (cause.empty()) {
    return;
  }
  const ckpt::StateDict state = state_to_save(objects);
  const at::Tensor first = at::tensor({first_bad(state)}, at::device(at::kCPU).dtype(at::kDouble));
  objects.root->mesh().team().control().all_reduce(first, ReduceOp::kMax).wait();
  const double number = *first.const_data_ptr<double>();
  FSDP2_CHECK(number == kNone, Code::kNotFinite,
              "{} is infinite or NaN since {}: it is not saved, so that no good checkpoint gives "
              "way to it; go on from the last good one, or save with options.allow_not_finite",
              state.tensors[static_cast<size_t>(-number)].name, cause);
}

}  // namespace fsdp2::train
