#include "core/train/infer/forward_run.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace fsdp2::train {

at::Tensor one_token(const at::Tensor& tokens) { return at::zeros({1, 1}, tokens.options()); }

ForwardRun::ForwardRun(nn::Module& module, std::optional<bool> reshard_after_forward)
    : root_(fsdp::find_unit(module)), keeps_gathered_(reshard_after_forward == false) {
  if (root_ == nullptr || !reshard_after_forward) {
    return;
  }
  for (const auto& unit : root_->units()) {
    if (unit->group() != nullptr) {
      fsdp::GroupSettings& settings = unit->group()->settings();
      settings_.emplace_back(&settings, settings.reshard_after_forward);
      settings.reshard_after_forward = reshard_after_forward;
    }
  }
}

ForwardRun::~ForwardRun() { restore(); }

void ForwardRun::restore() {
  for (const auto& [settings, value] : settings_) {
    settings->reshard_after_forward = value;
  }
  settings_.clear();
}

int64_t ForwardRun::most(int64_t number) const {
  if (root_ == nullptr) {
    return number;
  }
  const at::Tensor largest = at::tensor({number}, at::device(at::kCPU).dtype(at::kLong));
  root_->mesh().team().control().all_reduce(largest, ReduceOp::kMax).wait();
  return largest.item<int64_t>();
}

std::vector<double> ForwardRun::sums(std::vector<double> numbers) const {
  if (root_ == nullptr) {
    return numbers;
  }
  const at::Tensor totals = at::tensor(numbers, at::device(at::kCPU).dtype(at::kDouble));
  root_->mesh().team().control().all_reduce(totals, ReduceOp::kSum).wait();
  std::copy_n(totals.const_data_ptr<double>(), numbers.size(), numbers.begin());
  return numbers;
}

void ForwardRun::finish() {
  restore();
  if (root_ == nullptr || !keeps_gathered_) {
    return;
  }
  for (const auto& unit : root_->units()) {
    unit->reshard();
  }
}

}  // namespace fsdp2::train
