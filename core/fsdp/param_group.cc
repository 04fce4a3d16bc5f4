#include "core/fsdp/param_group.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace fsdp2::fsdp {

ParamGroup::ParamGroup(std::vector<std::unique_ptr<ShardedParam>> params,
                       std::shared_ptr<Mesh> mesh, Policy policy)
    : params_(std::move(params)), mesh_(std::move(mesh)), policy_(policy) {
  for (const auto& param : params_) {
    views_.push_back(param.get());
    if (param->requires_grad()) {
      trainable_.push_back(param.get());
    }
    if (!param->is_whole()) {
      unsharded_bytes_ += param->unsharded_bytes();
    }
  }
}

Comm& ParamGroup::shard_comm(Lane lane) const { return mesh_->comm(mesh_->ndim() - 1, lane); }

Comm* ParamGroup::replicate_comm() const {
  return mesh_->ndim() == 2 && mesh_->size(0) > 1 ? &mesh_->comm(0, Lane::kReduce) : nullptr;
}

at::ScalarType ParamGroup::reduce_dtype() const {
  return policy_.mixed_precision.reduce_dtype.value_or(trainable_.front()->compute_dtype());
}

void ParamGroup::start_unshard() {
  if (state_ != GroupState::kSharded) {
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  for (ShardedParam* param : views_) {
    if (!param->is_whole()) {
      param->allocate_unsharded();
    }
  }
  gather_ = start_all_gather(views_, shard_comm(Lane::kGather), policy_.comm_path);
  state_ = GroupState::kGathering;
}

void ParamGroup::wait_unshard() {
  if (state_ != GroupState::kGathering) {
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  finish_all_gather(gather_, shard_comm(Lane::kGather));
  state_ = GroupState::kUnsharded;
}

void ParamGroup::reshard() {
  wait_unshard();
  if (state_ == GroupState::kSharded) {
    return;
  }
  for (ShardedParam* param : views_) {
    param->free_unsharded();
  }
  state_ = GroupState::kSharded;
}

void ParamGroup::abandon() noexcept {
  for (ShardedParam* param : views_) {
    if (state_ == GroupState::kGathering) {
      param->forsake_unsharded();
    } else {
      param->free_unsharded();
    }
    param->clear_unsharded_grad();
  }
  gather_ = {};
  reduction_.reset();
  state_ = GroupState::kSharded;
}

void ParamGroup::accumulate_grads() {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  for (ShardedParam* param : trainable_) {
    if (param->compute_dtype() != reduce_dtype()) {
      param->accumulate_unsharded_grad(reduce_dtype());
    }
  }
}

void ParamGroup::start_reduce() {
  const bool gradients_are_final =
      shard_comm(Lane::kReduce).size() == 1 && replicate_comm() == nullptr &&
      std::all_of(trainable_.begin(), trainable_.end(),
                  [](const ShardedParam* param) { return param->is_whole(); });
  if (trainable_.empty() || gradients_are_final) {
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  reduction_ = start_reduce_scatter(trainable_, shard_comm(Lane::kReduce), policy_.comm_path,
                                    reduce_dtype());
}

void ParamGroup::finish_reduce() {
  if (reduction_) {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    finish_reduce_scatter(*reduction_, replicate_comm());
    reduction_.reset();
  }
}

std::string ParamGroup::describe() const {
  int64_t numel = 0;
  size_t direct = 0;
  for (const ShardedParam* param : views_) {
    numel += param->layout().global_numel();
    direct += gathers_direct(*param, policy_.comm_path) ? 1 : 0;
  }
  return fmt::format(
      "{} parameters, {} elements, {} bytes gathered, {} direct + {} packed, {}{}", views_.size(),
      numel, unsharded_bytes_, direct, views_.size() - direct,
      c10::toString(views_.front()->dtype()),
      views_.front()->dtype() == views_.front()->compute_dtype()
          ? std::string()
          : fmt::format(" computed in {}", c10::toString(views_.front()->compute_dtype())));
}

}  // namespace fsdp2::fsdp
