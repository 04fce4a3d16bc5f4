// The operators of recording devices: the host's, over the same memory. What an operator reads and
// writes, its schema tells.
#include <ATen/EmptyTensor.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/recording_device/device.h"
#include "tests/support/recording_device/graphs.h"

namespace fsdp2::recording {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

bool is_recorded(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

// How many elements a result has depends on values, so the host waits for them.
bool has_shape_of_values(const std::string& name) {
  static const std::set<std::string> kNames{"aten::nonzero", "aten::masked_select",
                                            "aten::_unique2", "aten::unique_dim"};
  return kNames.count(name) > 0;
}

// ---- one call

class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack) : op_(op), stack_(stack) {}

  void run() {
    const auto& schema = op_.schema();
    const size_t n = schema.arguments().size();
    arguments_.assign(stack_.end() - static_cast<ptrdiff_t>(n), stack_.end());
    torch::jit::Stack host;
    for (size_t i = 0; i < n; ++i) {
      const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
      host.push_back(lower(arguments_[i], alias != nullptr && alias->isWrite()));
    }
    TORCH_CHECK(device_.has_value(), schema.name(), ": no tensor of a recording device");
    const c10::DeviceGuard guard(*device_);
    Recorder& of_device = recorder(device_->index());
    const int stream = current_stream(device_->index());
    of_device.work(stream, schema.name(), reads_, writes_);
    torch::jit::Stack lowered = host;
    {
      const at::AutoDispatchBelowADInplaceOrView no_autograd;
      op_.callBoxed(&host);
    }
    bool host_reads = has_shape_of_values(schema.name());
    for (size_t i = 0; i < lowered.size(); ++i) {
      raise_changed(i, lowered[i]);
    }
    stack_.resize(stack_.size() - n);
    for (size_t i = 0; i < host.size(); ++i) {
      stack_.push_back(lift(host[i], schema.returns()[i]));
      host_reads |= !host[i].isTensor() && !host[i].isTensorList() && !host[i].isNone();
    }
    of_device.work(stream, schema.name(), {}, outputs_);
    keep(std::move(lowered));
    if (host_reads) {
      of_device.wait_on_host(of_device.mark(stream), schema.name());
    }
  }

 private:
  // For replays: the same call, on the same memory.
  void keep(torch::jit::Stack lowered) {
    keep_work(device_->index(), [op = op_, lowered = std::move(lowered), made = made_,
                                 changed = changed_] {
      torch::jit::Stack stack = lowered;
      op.callBoxed(&stack);
      for (const auto& [argument, output] : changed) {
        output.copy_(lowered[argument].toTensor());
      }
      size_t next = 0;
      const auto copy_next = [&](const at::Tensor& result) {
        if (next < made.size() && !is_one_of(result, lowered)) {
          made[next++].copy_(result);
        }
      };
      for (const c10::IValue& value : stack) {
        if (value.isTensorList()) {
          for (const at::Tensor& result : value.toTensorVector()) {
            copy_next(result);
          }
        } else if (value.isTensor() && value.toTensor().defined()) {
          copy_next(value.toTensor());
        }
      }
      TORCH_CHECK(next == made.size(), op.schema().name(), ": a replay makes other results");
    });
  }

  static bool is_one_of(const at::Tensor& tensor, const torch::jit::Stack& stack) {
    return std::any_of(stack.begin(), stack.end(), [&](const c10::IValue& value) {
      return value.isTensor() && value.toTensor().is_same(tensor);
    });
  }

  at::Tensor lower(const at::Tensor& tensor, bool writes) {
    if (!is_recorded(tensor)) {
      return tensor;
    }
    device_ = tensor.device();
    if (Memory* memory = memory_of(tensor)) {
      (writes ? writes_ : reads_).push_back(memory);
    }
    return on_host(tensor);
  }

  c10::IValue lower(const c10::IValue& value, bool writes) {
    if (value.isTensor()) {
      return lower(value.toTensor(), writes);
    }
    if (value.isTensorList()) {
      std::vector<at::Tensor> lowered;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        lowered.push_back(lower(tensor, writes));
      }
      return lowered;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> lowered;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        lowered.push_back(tensor ? std::optional(lower(*tensor, writes)) : std::nullopt);
      }
      return lowered;
    }
    if (value.isDevice() && value.toDevice().type() == kType) {
      device_ = value.toDevice();
      return at::Device(at::kCPU);
    }
    return value;
  }

  // An output that was too small has got other memory and another shape.
  void raise_changed(size_t index, const c10::IValue& lowered) {
    const c10::IValue& argument = arguments_[index];
    if (!argument.isTensor() || !is_recorded(argument.toTensor())) {
      return;
    }
    const at::Tensor& tensor = argument.toTensor();
    const at::Tensor& host = lowered.toTensor();
    if (tensor.sizes() == host.sizes() && tensor.strides() == host.strides()) {
      return;
    }
    at::native::resize_(tensor, host.sizes());
    changed_.emplace_back(index, on_host(tensor));
    changed_.back().second.copy_(host);
  }

  c10::IValue lift(const c10::IValue& value, const c10::Argument& described) {
    if (value.isTensorList()) {
      std::vector<at::Tensor> lifted;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        lifted.push_back(lift(tensor));
      }
      return lifted;
    }
    if (!value.isTensor() || !value.toTensor().defined()) {
      return value;
    }
    if (described.alias_info() == nullptr) {
      return lift(value.toTensor());
    }
    const auto& arguments = op_.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::AliasInfo* alias = arguments[i].alias_info();
      if (alias != nullptr && alias->isWrite() && *alias == *described.alias_info()) {
        return arguments_[i];
      }
    }
    TORCH_CHECK(false, op_.schema().name(), ": a view that recording devices have no kernel for");
  }

  at::Tensor lift(const at::Tensor& host) {
    at::Tensor tensor = at::detail::empty_strided_generic(
        host.sizes(), host.strides(), c10::GetAllocator(kType), kKeys, host.scalar_type());
    made_.push_back(on_host(tensor));
    made_.back().copy_(host);
    if (Memory* memory = memory_of(tensor)) {
      outputs_.push_back(memory);
    }
    return tensor;
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  std::vector<c10::IValue> arguments_;
  std::optional<at::Device> device_;
  std::vector<Memory*> reads_;
  std::vector<Memory*> writes_;
  std::vector<Memory*> outputs_;
  std::vector<std::pair<size_t, at::Tensor>> changed_;  // arguments, with their new memory
  std::vector<at::Tensor> made_;  // of the host, over the memory of what the call has returned
};

void run_boxed(const c10::OperatorHandle& op, torch::jit::Stack* stack) { Call(op, *stack).run(); }

// ---- memory, and copies between it and the host's

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                 std::optional<bool> /*pinned*/, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device->has_index() ? device : std::nullopt);
  return at::detail::empty_generic(size, c10::GetAllocator(kType), kKeys,
                                   dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> device, std::optional<bool> /*pinned*/) {
  const c10::OptionalDeviceGuard guard(device->has_index() ? device : std::nullopt);
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(kType), kKeys,
                                           dtype.value_or(at::kFloat));
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.numel() == 0) {
    return to;
  }
  const at::Device device = is_recorded(to) ? to.device() : from.device();
  Recorder& of_device = recorder(device.index());
  const int stream = current_stream(device.index());
  std::vector<Memory*> reads;
  std::vector<Memory*> writes;
  if (is_recorded(from)) {
    reads.push_back(memory_of(from));
  }
  if (is_recorded(to)) {
    writes.push_back(memory_of(to));
  }
  if (!is_recorded(to) || !is_recorded(from)) {
    of_device.refuse_in_recording(is_recorded(to) ? "a copy from the host" : "a copy to the host");
  }
  of_device.work(stream, "aten::copy_", reads, writes);
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const at::Tensor values = is_recorded(from) ? on_host(from) : from;
  if (!is_recorded(to) && non_blocking) {
    of_device.deliver(stream, [to, now = values.clone()] { to.copy_(now); });
  } else {
    const at::Tensor target = is_recorded(to) ? on_host(to) : to;
    target.copy_(values);
    keep_work(device.index(), [target, values] { target.copy_(values); });
  }
  if (!non_blocking && !(is_recorded(to) && is_recorded(from))) {
    of_device.wait_on_host(of_device.mark(stream),
                           is_recorded(to) ? "a copy from the host" : "a copy to the host");
  }
  return to;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  at::Tensor target = to;
  return copy(target, from, non_blocking);
}

// Which attention to take is told by shapes: the one that is made of other operators.
int64_t attention_of_operators(const at::Tensor& /*query*/, const at::Tensor& /*key*/,
                               const at::Tensor& /*value*/,
                               const std::optional<at::Tensor>& /*mask*/, double /*dropout*/,
                               bool /*is_causal*/, std::optional<double> /*scale*/,
                               bool /*enable_gqa*/) {
  return static_cast<int64_t>(at::SDPBackend::math);
}

bool may_share_a_parameter(const at::Tensor& /*self*/, const at::Tensor& /*from*/) { return true; }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("copy_", &copy);
  m.impl("_copy_from", &copy_from);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("resize_", &at::native::resize_);
  m.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("_fused_sdp_choice", &attention_of_operators);
  m.impl("_has_compatible_shallow_copy_type", &may_share_a_parameter);
}

}  // namespace

}  // namespace fsdp2::recording
