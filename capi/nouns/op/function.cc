// Functions of the caller that say how they are differentiated.
#include "include/fsdp2/function.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/callback.h"
#include "capi/nouns/module/tensor.h"
#include "capi/nouns/op/scope.h"
#include "capi/nouns/op/value.h"
#include "capi/object.h"
#include "include/fsdp2/custom.h"

namespace fsdp2::capi {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What one call has been given; the graph that it makes keeps it.
struct CallersFunction : torch::CustomClassHolder {
  struct Form {
    std::vector<int64_t> shape;
    at::ScalarType dtype;
  };

  std::string name;
  fsdp2_function_forward_fn forward;
  fsdp2_function_backward_fn backward;
  std::vector<Form> inputs;
  UserData held;

  CallersFunction(std::string name_in, fsdp2_function_forward_fn forward_in,
                  fsdp2_function_backward_fn backward_in, const variable_list& tensors, void* data)
      : name(std::move(name_in)), forward(forward_in), backward(backward_in), held(data) {
    for (const at::Tensor& tensor : tensors) {
      inputs.push_back({tensor.sizes().vec(), tensor.scalar_type()});
    }
  }
};

using NeedsGrad = std::vector<int32_t>;

fsdp2_function_info info_of(const NeedsGrad& needs_grad) {
  return {sizeof(fsdp2_function_info), 0, needs_grad.data(), needs_grad.size()};
}

// What `forward` has written.
struct Made {
  variable_list outputs;
  variable_list saved;
};

Made take(const fsdp2_tensor* outputs, size_t n_outputs, const fsdp2_tensor* saved, size_t n_saved,
          const LentTensors& inputs) {
  check_count(n_outputs, 1, FSDP2_MAX_OUTPUTS, "n_outputs");
  check_count(n_saved, 0, FSDP2_MAX_OUTPUTS, "n_saved");
  const HandedOver first({&inputs}, outputs, n_outputs);
  const HandedOver second({&inputs}, saved, n_saved);
  return {read_tensors(outputs, n_outputs, "outputs"), read_tensors(saved, n_saved, "saved")};
}

Made run_forward(const CallersFunction& function, const NeedsGrad& needs_grad,
                 at::TensorList tensors) {
  const std::string what = "forward of " + function.name;
  LentTensors inputs;
  for (const at::Tensor& tensor : tensors) {
    inputs.lend(tensor);
  }
  const fsdp2_function_info info = info_of(needs_grad);
  fsdp2_tensor outputs[FSDP2_MAX_OUTPUTS] = {};
  fsdp2_tensor saved[FSDP2_MAX_OUTPUTS] = {};
  size_t n_outputs = 0;
  size_t n_saved = 0;
  call_back(what, [&] {
    return function.forward(&info, inputs.handles().data(), inputs.handles().size(), outputs, saved,
                            FSDP2_MAX_OUTPUTS, &n_outputs, &n_saved, function.held.data());
  });
  return in_context(
      what, [&] { return take(outputs, n_outputs, saved, n_saved, inputs); }, Code::kCallback);
}

at::Tensor read_gradient(fsdp2_tensor given, const CallersFunction::Form& input, size_t index) {
  at::Tensor gradient = pin(given)->tensor;
  check_has_memory(gradient);
  FSDP2_CHECK(gradient.sizes() == input.shape && gradient.scalar_type() == input.dtype,
              Code::kInvalidArgument,
              "gradients[{}]: expected shape [{}] and type {}, as the input has, found [{}] and {}",
              index, fmt::join(input.shape, ", "), c10::toString(input.dtype),
              fmt::join(gradient.sizes(), ", "), c10::toString(gradient.scalar_type()));
  return gradient.detach();
}

variable_list run_backward(const CallersFunction& function, const NeedsGrad& needs_grad,
                           const variable_list& saved_tensors, const variable_list& gradients) {
  const std::string what = "backward of " + function.name;
  LentTensors saved;
  LentTensors of_outputs;
  for (const at::Tensor& tensor : saved_tensors) {
    check_has_memory(tensor);
    saved.lend(tensor);
  }
  for (const at::Tensor& gradient : gradients) {
    of_outputs.lend(gradient);
  }
  const fsdp2_function_info info = info_of(needs_grad);
  std::vector<fsdp2_tensor> given(needs_grad.size());
  call_back(what, [&] {
    return function.backward(&info, saved.handles().data(), saved.handles().size(),
                             of_outputs.handles().data(), of_outputs.handles().size(), given.data(),
                             function.held.data());
  });
  const HandedOver handed_over({&saved, &of_outputs}, given.data(), given.size());
  variable_list read(given.size());
  in_context(
      what,
      [&] {
        for (size_t i = 0; i < given.size(); ++i) {
          if (given[i].id != 0 && needs_grad[i] == 1) {
            read[i] = read_gradient(given[i], function.inputs[i], i);
          }
        }
      },
      Code::kCallback);
  return read;
}

using FunctionPointer = c10::intrusive_ptr<CallersFunction>;
constexpr char kFunctionKey[] = "function";

struct Differentiated : torch::autograd::Function<Differentiated> {
  static variable_list forward(AutogradContext* context, const FunctionPointer& function,
                               const NeedsGrad& needs_grad, at::TensorList inputs) {
    context->saved_data[kFunctionKey] = c10::IValue::make_capsule(function);
    Made made = run_forward(*function, needs_grad, inputs);
    context->save_for_backward(std::move(made.saved));
    return std::move(made.outputs);
  }

  // The first two of forward's arguments have no gradient.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto function = c10::static_intrusive_pointer_cast<CallersFunction>(
        context->saved_data.at(kFunctionKey).toCapsule());
    NeedsGrad needs_grad;
    for (size_t i = 0; i < function->inputs.size(); ++i) {
      needs_grad.push_back(context->needs_input_grad(i) ? 1 : 0);
    }
    variable_list all(2);
    for (at::Tensor& gradient :
         run_backward(*function, needs_grad, context->get_saved_variables(), gradients)) {
      all.push_back(std::move(gradient));
    }
    return all;
  }
};

struct FunctionOutputs {
  fsdp2_tensor* handles;
  size_t cap;
  size_t* needed;
};

void call_function(const FunctionPointer& function, const variable_list& inputs,
                   const Producers& producers, bool records, ScopeObject* scope,
                   const FunctionOutputs& outputs) {
  const at::AutoGradMode grad_mode(records);
  NeedsGrad needs_grad;
  for (const at::Tensor& input : inputs) {
    needs_grad.push_back(records && input.requires_grad() ? 1 : 0);
  }
  const at::TensorList list = inputs;
  const variable_list made = Differentiated::apply(function, needs_grad, list);
  check_room("outputs", outputs.handles, outputs.cap, made.size(), outputs.needed);
  GivenTensors given;
  for (const at::Tensor& tensor : made) {
    given.give(tensor, producers);
  }
  if (scope != nullptr) {
    scope->add(given.handles());
  }
  const std::vector<fsdp2_tensor> handles = given.keep();
  std::copy(handles.begin(), handles.end(), outputs.handles);
  *outputs.needed = handles.size();
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_function_call(const char* name, const fsdp2_tensor* inputs, size_t n_inputs,
                                 uint32_t flags, fsdp2_scope scope,
                                 fsdp2_function_forward_fn forward,
                                 fsdp2_function_backward_fn backward, void* user_data,
                                 fsdp2_release_fn release, fsdp2_tensor* outputs, size_t cap,
                                 size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto in = scope.id == 0 ? nullptr : pin(scope);
    const bool records = call.caller_records_gradients() && !capi::read_no_grad(flags);
    const std::vector<at::Tensor> tensors = capi::read_tensors(inputs, n_inputs, "inputs");
    const auto function = c10::make_intrusive<capi::CallersFunction>(
        capi::read_text(name, capi::kMaxName, "name"), capi::check_not_null(forward, "forward"),
        capi::check_not_null(backward, "backward"), tensors, user_data);
    capi::check_room("outputs", outputs, cap, 1, capi::check_not_null(needed, "needed"));
    capi::call_function(function, tensors, capi::producers_of(inputs, n_inputs), records, in.get(),
                        {outputs, cap, needed});
    function->held.release_by(release);
  });
}
