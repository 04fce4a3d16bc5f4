#include "core/fsdp/group/sharded_param.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "core/base/error.h"
#include "core/fsdp/group/move_in_place.h"
#include "core/nn/meta_tensor.h"
#include "core/nn/module.h"

namespace fsdp2::fsdp {

// Sits in the one post-accumulate slot of the unsharded parameter; its presence also tells that the
// parameter has been taken over.
class ShardedParam::GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientHook(const ShardedParam* owner) : owner_(owner) {}
  void operator()(const torch::autograd::Variable& /*tensor*/) override {
    if (owner_->on_gradient_) {
      owner_->on_gradient_();
    }
  }

 private:
  const ShardedParam* owner_;
};

bool ShardedParam::manages(const at::Tensor& parameter) {
  if (torch::autograd::impl::get_autograd_meta(parameter) == nullptr) {
    return false;  // never part of autograd, so never taken over
  }
  const auto& hook = torch::autograd::impl::post_acc_grad_hooks(parameter);
  return dynamic_cast<const GradientHook*>(hook.get()) != nullptr;
}

ShardedParam::ShardedParam(at::Tensor parameter, ShardLayout layout,
                           std::optional<at::ScalarType> compute_dtype, at::Device device,
                           const Offload& offload)
    : layout_(std::move(layout)),
      computes_in_own_dtype_(!compute_dtype),
      compute_dtype_(compute_dtype.value_or(parameter.scalar_type())),
      unsharded_(std::move(parameter)) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  if (device.is_meta()) {
    nn::turn_into_meta(unsharded_);
  }
  const at::ScalarType dtype = unsharded_.scalar_type();
  const bool requires_grad = unsharded_.requires_grad();
  const bool offloaded = offload.to_cpu && !nn::acts_as_host(device);
  whole_ = layout_.world == 1 && compute_dtype_ == dtype && !offloaded;
  has_values_ = !device.is_meta() && !nn::has_no_memory(unsharded_);
  if (whole_) {
    move_in_place(unsharded_, device);
    sharded_ = unsharded_;
  } else {
    at::TensorOptions options = unsharded_.options().requires_grad(false).device(device);
    if (offloaded) {
      options = options.device(at::kCPU).pinned_memory(offload.pin_memory);
    }
    const bool deferred = !has_values_ && !offloaded && !device.is_meta();
    shard_flat_ = deferred ? at::empty({layout_.padded_numel()}, options)
                           : at::zeros({layout_.padded_numel()}, options);
    const at::Tensor local = view_local();
    if (has_values_ && layout_.length > 0) {
      local.copy_(unsharded_.detach().narrow(layout_.dim, layout_.start, layout_.length));
    }
    sharded_ = local.detach().set_requires_grad(requires_grad);
    if (deferred) {
      nn::resize_storage(shard_flat_, 0);  // untouched so far; the views stay
    }
    // A fresh storage of nothing, in compute dtype; the parameter object stays.
    unsharded_.set_data(
        nn::deferred_parameter(layout_.global_shape, compute_dtype_, device).detach());
  }
  torch::autograd::impl::set_post_acc_grad_hooks(unsharded_, std::make_unique<GradientHook>(this));
}

ShardedParam::~ShardedParam() {
  torch::autograd::impl::set_post_acc_grad_hooks(unsharded_, nullptr);
}

void ShardedParam::ensure_memory() const {
  FSDP2_CHECK(has_values_ || !unsharded_.is_meta(), Code::kUnsupported,
              "{}: the mesh's device is meta, whose tensors have shapes and no values: plan the "
              "step, or shard over a mesh of cpu or cuda",
              name());
  if (!has_values_ && nn::has_no_memory(stored())) {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    const at::Tensor& memory = stored();
    nn::resize_storage(memory, memory.numel() * static_cast<int64_t>(memory.element_size()));
    memory.zero_();
  }
}

const at::Tensor& ShardedParam::sharded() const {
  ensure_memory();
  return sharded_;
}

const at::Tensor& ShardedParam::shard_flat() const {
  ensure_memory();
  return shard_flat_;
}

at::Tensor ShardedParam::local_values() const {
  ensure_memory();
  return view_local();
}

at::Tensor ShardedParam::padding() const {
  const int64_t used = layout_.local_numel();
  return shard_flat_.narrow(0, used, layout_.padded_numel() - used);
}

at::Tensor ShardedParam::view_local() const {
  if (whole_) {
    return unsharded_.detach();
  }
  return shard_flat_.narrow(0, 0, layout_.local_numel()).view(layout_.local_shape());
}

void ShardedParam::cast_shard(at::ScalarType dtype) {
  if (dtype == this->dtype() || !at::isFloatingType(this->dtype())) {
    return;
  }
  FSDP2_CHECK(
      !whole_ || computes_in_own_dtype_, Code::kUnsupported,
      "{}: the shard on a group of one rank is the module's own parameter, which is computed "
      "in {} as param_dtype says: expected no param_dtype, or a cast of the module before it "
      "is sharded",
      name(), c10::toString(compute_dtype_));
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const bool requires_grad = this->requires_grad();
  ensure_memory();
  if (whole_) {
    unsharded_.set_data(unsharded_.detach().to(dtype));
  } else {
    const at::Tensor cast = shard_flat_.to(dtype);
    shard_flat_ = shard_flat_.is_pinned() ? cast.pin_memory() : cast;
    sharded_ = local_values().detach().set_requires_grad(requires_grad);
  }
  if (computes_in_own_dtype_) {
    compute_dtype_ = dtype;
    if (!whole_) {
      unsharded_.set_data(
          nn::deferred_parameter(layout_.global_shape, dtype, unsharded_.device()).detach());
    }
  }
}

std::vector<at::Tensor> ShardedParam::held() const {
  return {shard_flat_,       unsharded_,        slice_,        sharded_.grad(),
          unsharded_.grad(), accumulated_grad_, reduced_aside_};
}

int64_t ShardedParam::unsharded_bytes() const {
  const auto item_bytes = static_cast<int64_t>(c10::elementSize(compute_dtype_));
  return layout_.world * layout_.padded_numel() * item_bytes;
}

void ShardedParam::allocate_unsharded(KeptBuffers& buffers) {
  buffers.allocate(unsharded_, unsharded_bytes());
}

void ShardedParam::free_unsharded(KeptBuffers& buffers) {
  if (!whole_) {
    buffers.free(unsharded_);
  }
}

void ShardedParam::forsake_unsharded() {
  if (!whole_) {
    c10::Allocator* allocator = c10::GetAllocator(unsharded_.device().type());
    const c10::OptionalDeviceGuard guard(unsharded_.device());
    unsharded_.unsafeGetTensorImpl()->set_storage_keep_dtype(c10::Storage(
        c10::Storage::use_byte_size_t(), 0, allocator->allocate(0), allocator, /*resizable=*/true));
  }
  slice_ = at::Tensor();
}

void ShardedParam::keep_slice(int index, int count, KeptBuffers& buffers) {
  if (!whole_) {
    const at::Tensor part = unsharded_flat().chunk(count)[static_cast<size_t>(index)];
    slice_ = buffers.empty(part.sizes(), part.options());
    slice_.copy_(part);
  }
}

// As views are made in ATen. Through the dispatcher it would take two operators, for each parameter
// of each gather.
at::Tensor ShardedParam::unsharded_flat() const {
  at::Tensor flat = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(unsharded_.storage()), unsharded_.key_set(),
      unsharded_.dtype());
  flat.unsafeGetTensorImpl()->set_sizes_contiguous({layout_.world * layout_.padded_numel()});
  return flat;
}

void ShardedParam::set_reduced_aside() {
  if (whole_) {
    reduced_aside_ = std::exchange(unsharded_.mutable_grad(), at::Tensor());
  }
}

void ShardedParam::put_reduced_back() {
  if (reduced_aside_.defined()) {
    add_sharded_grad(std::exchange(reduced_aside_, at::Tensor()));
  }
}

bool ShardedParam::has_unsharded_grad() const {
  return unsharded_.grad().defined() || accumulated_grad_.defined();
}

at::Tensor ShardedParam::move_engine_grad() {
  at::Tensor grad = std::exchange(unsharded_.mutable_grad(), at::Tensor());
  put_reduced_back();
  FSDP2_CHECK(!grad.defined() || grad.layout() == c10::kStrided, Code::kUnsupported,
              "{}: expected a dense gradient, found a sparse one (sparse or sparse_grad of an "
              "operator)",
              name());
  return grad;
}

at::Tensor ShardedParam::take_unsharded_grad() {
  at::Tensor grad = move_engine_grad();
  if (accumulated_grad_.defined()) {
    if (grad.defined()) {
      accumulated_grad_.add_(grad);
    }
    grad = std::exchange(accumulated_grad_, at::Tensor());
  }
  return grad;
}

void ShardedParam::accumulate_unsharded_grad(at::ScalarType dtype) {
  const at::Tensor grad = move_engine_grad();
  if (!grad.defined()) {
    return;
  }
  if (accumulated_grad_.defined()) {
    accumulated_grad_.add_(grad);
  } else {
    accumulated_grad_ = grad.to(dtype);
  }
}

void ShardedParam::clear_unsharded_grad() {
  unsharded_.mutable_grad() = at::Tensor();
  accumulated_grad_ = at::Tensor();
  put_reduced_back();
}

void ShardedParam::add_sharded_grad(at::Tensor grad) {
  at::Tensor& current = sharded_.mutable_grad();
  if (current.defined()) {
    current.add_(grad);
  } else {
    current = std::move(grad);
  }
}

}  // namespace fsdp2::fsdp
