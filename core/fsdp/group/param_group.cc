#include "core/fsdp/group/param_group.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/error.h"

namespace fsdp2::fsdp {

namespace {

std::shared_ptr<Comm> own_comm(const Mesh& mesh, int dim, Lane lane) {
  const Comm& shared = mesh.comm(dim, lane);
  return shared.share(shared.name());
}

// Such parameters are their own shards and stay where they are: there is nothing for a stream to
// do.
bool all_are_whole(const std::vector<ShardedParam*>& params) {
  return std::all_of(params.begin(), params.end(),
                     [](const ShardedParam* param) { return param->is_whole(); });
}

}  // namespace

ParamGroup::ParamGroup(std::vector<std::unique_ptr<ShardedParam>> params,
                       std::shared_ptr<Mesh> mesh, Policy policy)
    : params_(std::move(params)),
      mesh_(std::move(mesh)),
      shard_mesh_(Mesh::from_group(mesh_->shared_team(), mesh_->group(mesh_->ndim() - 1),
                                   mesh_->dim_name(mesh_->ndim() - 1))),
      gather_comm_(own_comm(*mesh_, mesh_->ndim() - 1, Lane::kGather)),
      reduce_comm_(own_comm(*mesh_, mesh_->ndim() - 1, Lane::kReduce)),
      policy_(std::move(policy)) {
  if (mesh_->ndim() == 2 && mesh_->size(0) > 1) {
    replicate_comm_ = own_comm(*mesh_, 0, Lane::kReduce);
  }
  for (const auto& param : params_) {
    views_.push_back(param.get());
    if (param->requires_grad()) {
      trainable_.push_back(param.get());
    }
  }
  count_unsharded_bytes();
  gather_memory_ = KeptBuffers([this](int64_t bytes) { return gather_comm_->allocate(bytes); });
  reduce_memory_ = KeptBuffers([this](int64_t bytes) { return reducing_comm()->allocate(bytes); });
}

void ParamGroup::count_unsharded_bytes() {
  unsharded_bytes_ = 0;
  for (const ShardedParam* param : views_) {
    unsharded_bytes_ += param->is_whole() ? 0 : param->unsharded_bytes();
  }
}

void ParamGroup::cast_shards(at::ScalarType dtype) {
  for (ShardedParam* param : views_) {
    param->cast_shard(dtype);
  }
  count_unsharded_bytes();
}

void ParamGroup::reduce_on_gather_lane() {
  reduce_comm_ = own_comm(*mesh_, mesh_->ndim() - 1, Lane::kGather);
  if (replicate_comm_) {
    replicate_comm_ = own_comm(*mesh_, 0, Lane::kGather);
  }
}

void ParamGroup::set_silent(bool flag) {
  for (const auto& comm : {gather_comm_, reduce_comm_, replicate_comm_, slice_comm_}) {
    if (comm) {
      comm->set_silent(flag);
    }
  }
}

void ParamGroup::check_streams() const {
  for (const auto& comm : {gather_comm_, reduce_comm_, replicate_comm_, slice_comm_}) {
    if (comm) {
      comm->check_streams();
    }
  }
}

CommCounters ParamGroup::comm_counters() const {
  CommCounters total;
  for (const auto& comm : {gather_comm_, reduce_comm_, replicate_comm_, slice_comm_}) {
    if (comm) {
      total += comm->counters();
    }
  }
  return total;
}

at::ScalarType ParamGroup::reduce_dtype() const {
  return policy_.mixed_precision.reduce_dtype.value_or(trainable_.front()->compute_dtype());
}

int64_t ParamGroup::live_bytes() const {
  switch (state_) {
    case GroupState::kSharded:
      return 0;
    case GroupState::kPostForward:
      return unsharded_bytes_ / slice_comm_->size();
    case GroupState::kGathering:
      return from_slices_ ? unsharded_bytes_ + unsharded_bytes_ / slice_comm_->size()
                          : unsharded_bytes_;
    case GroupState::kUnsharded:
      break;
  }
  return unsharded_bytes_;
}

const std::shared_ptr<Comm>& ParamGroup::reducing_comm() const {
  return reduce_comm_->size() > 1 || !replicate_comm_ ? reduce_comm_ : replicate_comm_;
}

void ParamGroup::check_groups_give_memory(const std::string& unit) const {
  for (const auto& comm : {gather_comm_, reducing_comm()}) {
    FSDP2_CHECK(
        comm->size() == 1 || comm->has_memory(), Code::kUnsupported,
        "unit '{}': allocate_memory_from_process_group: group {} is one of {} over {}, "
        "which has no memory of its own to give: leave it off, or use a mesh of cuda over nccl",
        unit, comm->name(), comm->device().str(), comm->transport_name());
  }
}

bool ParamGroup::gathers_in_group_memory() const {
  return settings_.allocate_memory_from_process_group && gather_comm_->size() > 1;
}

bool ParamGroup::reduces_in_group_memory() const {
  return settings_.allocate_memory_from_process_group && reducing_comm()->size() > 1;
}

void ParamGroup::release_group_memory() {
  gather_comm_->release_memory();
  reducing_comm()->release_memory();
}

KeptBuffers& ParamGroup::memory_of_parameter(const ShardedParam& param) {
  const GatherSource source = from_slices_ ? GatherSource::kSlices : GatherSource::kShards;
  return direct_in_group_memory_ && gathers_direct(param, policy_.comm_path, source)
             ? gather_memory_
             : buffers_->gather;
}

Comm& ParamGroup::gather_comm_in_use() const {
  return from_slices_ ? *slice_comm_ : shard_comm(Lane::kGather);
}

void ParamGroup::start_unshard() {
  if (state_ == GroupState::kGathering || state_ == GroupState::kUnsharded) {
    return;
  }
  if (all_are_whole(views_)) {
    state_ = GroupState::kGathering;
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto on_gather = streams_->gather.enter();
  from_slices_ = state_ == GroupState::kPostForward;
  GatherOptions options;
  options.source = from_slices_ ? GatherSource::kSlices : GatherSource::kShards;
  options.in_group_memory = gathers_in_group_memory();
  const bool extends = !from_slices_ && settings_.all_gather_extension != nullptr;
  direct_in_group_memory_ = options.in_group_memory && !extends;
  for (ShardedParam* param : views_) {
    if (!param->is_whole()) {
      param->allocate_unsharded(memory_of_parameter(*param));
    }
  }
  options.path = policy_.comm_path;
  options.extension = settings_.all_gather_extension;
  options.mesh = shard_mesh_.get();
  options.buffers = options.in_group_memory ? &gather_memory_ : &buffers_->gather;
  gather_ = start_all_gather(views_, gather_comm_in_use(), options);
  if (!waits_on_host()) {
    finish_gather();
  }
  state_ = GroupState::kGathering;
}

void ParamGroup::finish_gather() {
  const auto on_gather = streams_->gather.enter();
  finish_all_gather(gather_, gather_comm_in_use());
  gathered_.put(mesh_->device());
}

// Behind that, wait_unshard finds nothing left to finish.
void ParamGroup::stop_reading_shards() {
  if (state_ != GroupState::kGathering || all_are_whole(views_)) {
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  if (waits_on_host()) {
    finish_gather();
  }
  gathered_.make_current_wait();
}

void ParamGroup::wait_unshard() {
  if (state_ != GroupState::kGathering) {
    return;
  }
  if (all_are_whole(views_)) {
    state_ = GroupState::kUnsharded;
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  if (waits_on_host()) {
    finish_gather();
  }
  gathered_.make_current_wait();
  for (ShardedParam* param : views_) {
    param->drop_slice(buffers_->compute);
  }
  state_ = GroupState::kUnsharded;
}

// The memory of gathered parameters is the gather stream's, which from here on comes after what has
// computed with them.
void ParamGroup::reshard() {
  wait_unshard();
  if (state_ == GroupState::kSharded) {
    return;
  }
  if (all_are_whole(views_)) {
    state_ = GroupState::kSharded;
    return;
  }
  for (ShardedParam* param : views_) {
    param->free_unsharded(memory_of_parameter(*param));
    param->drop_slice(buffers_->compute);
  }
  streams_->gather.follow_current();
  state_ = GroupState::kSharded;
}

void ParamGroup::reshard_to_slices() {
  if (state_ != GroupState::kUnsharded) {
    return;
  }
  if (all_are_whole(views_)) {
    state_ = GroupState::kPostForward;
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  for (ShardedParam* param : views_) {
    param->keep_slice(slice_comm_->rank(), slice_comm_->size(), buffers_->compute);
    param->free_unsharded(memory_of_parameter(*param));
  }
  streams_->gather.follow_current();
  state_ = GroupState::kPostForward;
}

void ParamGroup::abandon() noexcept {
  for (ShardedParam* param : views_) {
    if (state_ == GroupState::kGathering) {
      param->forsake_unsharded();
    } else {
      param->free_unsharded(memory_of_parameter(*param));
      param->drop_slice(buffers_->compute);
    }
    param->clear_unsharded_grad();
  }
  gather_ = {};
  reduction_.reset();
  arriving_.drop();
  partial_ = {};
  state_ = GroupState::kSharded;
}

void ParamGroup::begin_backward() {
  for (ShardedParam* param : trainable_) {
    param->set_reduced_aside();
  }
}

void ParamGroup::end_backward() {
  for (ShardedParam* param : trainable_) {
    param->put_reduced_back();
  }
}

void ParamGroup::accumulate_grads() {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  for (ShardedParam* param : trainable_) {
    if (param->is_whole() || param->compute_dtype() != reduce_dtype()) {
      param->accumulate_unsharded_grad(reduce_dtype());
    }
  }
}

bool ParamGroup::has_unsharded_grads() const {
  return std::any_of(trainable_.begin(), trainable_.end(),
                     [](const ShardedParam* param) { return param->has_unsharded_grad(); });
}

// Whether gradients are final as autograd left them: one rank, nothing to scale, cast or tell.
bool ParamGroup::reduces_nothing() const {
  return shard_comm(Lane::kReduce).size() == 1 && replicate_comm() == nullptr &&
         settings_.gradient_divide_factor.value_or(1) == 1 && !settings_.all_reduce_hook &&
         !settings_.reduce_unused_parameters && all_are_whole(trainable_);
}

void ParamGroup::keep_gradients_as_they_are() {
  const auto on_grad = settings_.on_sharded_grad;  // which may set another
  for (ShardedParam* param : trainable_) {
    at::Tensor grad = param->take_unsharded_grad();
    if (grad.defined()) {
      param->add_sharded_grad(grad.to(param->dtype()));  // put off, it was summed in reduce_dtype
      if (on_grad) {
        on_grad(*param);
      }
    }
  }
}

void ParamGroup::start_reduce() {
  if (trainable_.empty()) {
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  if (reduces_nothing()) {
    keep_gradients_as_they_are();
    return;
  }
  ReduceOptions options;
  options.streams = streams_.get();
  options.in_group_memory = reduces_in_group_memory();
  options.buffers = options.in_group_memory ? &reduce_memory_ : &buffers_->compute;
  options.shard = &shard_comm(Lane::kReduce);
  options.replicate = replicate_comm();
  options.all_reduce = settings_.requires_all_reduce;
  options.path = policy_.comm_path;
  options.dtype = reduce_dtype();
  options.divide_factor = settings_.gradient_divide_factor;
  options.force_sum = settings_.force_sum_reduction;
  options.zeros_for_unused = settings_.reduce_unused_parameters;
  options.hook = settings_.all_reduce_hook;
  options.on_grad = settings_.on_sharded_grad;
  reduction_ = start_reduce_scatter(trainable_, options);
  if (!waits_on_host()) {
    continue_reduction(*reduction_, partial_);
  }
}

void ParamGroup::finish_reduce() {
  if (!reduction_) {
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  if (waits_on_host()) {
    continue_reduction(*reduction_, partial_);
  }
  finish_reduction(*reduction_, arriving_);
  reduction_.reset();
}

void ParamGroup::forget_unreduced() {
  if (reduction_) {
    discard_reduce_scatter(*reduction_);
    reduction_.reset();
  }
  arriving_.drop();
  partial_ = {};
  for (ShardedParam* param : views_) {
    param->clear_unsharded_grad();
  }
}

std::string ParamGroup::describe() const {
  int64_t numel = 0;
  size_t direct = 0;
  std::set<int> dims;
  for (const ShardedParam* param : views_) {
    numel += param->layout().global_numel();
    direct += gathers_direct(*param, policy_.comm_path) ? 1 : 0;
    dims.insert(param->layout().dim);
  }
  return fmt::format(
      "{} parameters, {} elements, {} bytes gathered, shard dim {}, {} direct + {} packed, {}{}",
      views_.size(), numel, unsharded_bytes_, fmt::join(dims, " and "), direct,
      views_.size() - direct, c10::toString(views_.front()->dtype()),
      views_.front()->dtype() == views_.front()->compute_dtype()
          ? std::string()
          : fmt::format(" computed in {}", c10::toString(views_.front()->compute_dtype())));
}

}  // namespace fsdp2::fsdp
