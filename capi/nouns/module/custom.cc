// Modules whose forward is a function of the caller.
#include "include/fsdp2/custom.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/callback.h"
#include "capi/nouns/module/give_custom.h"
#include "capi/nouns/module/tensor.h"
#include "capi/release.h"
#include "core/nn/custom_module.h"

namespace fsdp2::capi {

namespace {

// What a module's forward calls.
struct ForwardFunction {
  std::string what;  // for messages: "forward of Layer"
  fsdp2_forward_fn fn;
  std::shared_ptr<UserData> held;
  bool runs = false;  // read and changed by the one call that the module serves
};

// A forward that calls itself, or the one around it, would do so until the stack ends.
class RunningOnce {
 public:
  explicit RunningOnce(ForwardFunction& function) : function_(function) {
    FSDP2_CHECK(!function.runs, Code::kWrongState,
                "{}: it is running already: expected a call of one of its children", function.what);
    function.runs = true;
  }
  ~RunningOnce() { function_.runs = false; }
  RunningOnce(const RunningOnce&) = delete;
  RunningOnce& operator=(const RunningOnce&) = delete;

 private:
  ForwardFunction& function_;
};

// What is lent in place of a parameter: whether the parameter itself requires grad, no call on the
// handle can change, in a forward without gradients either.
at::Tensor view_of(const at::Tensor& parameter) {
  const at::AutoGradMode recording(true);
  return at::alias(parameter);
}

// The tensors that the caller has handed over.
std::vector<at::Tensor> take_outputs(const fsdp2_tensor* outputs, size_t count,
                                     std::vector<const LentTensors*> lent) {
  FSDP2_CHECK(count >= 1 && count <= FSDP2_MAX_OUTPUTS, Code::kInvalidArgument,
              "n_outputs: expected 1 to {}, found {}", static_cast<int>(FSDP2_MAX_OUTPUTS), count);
  const HandedOver handed_over(std::move(lent), outputs, count);
  return read_tensors(outputs, count, "outputs");
}

c10::IValue run_forward(ForwardFunction& function, const nn::CustomModule& module,
                        const nn::Values& values) {
  const std::string& what = function.what;
  const RunningOnce running(function);
  LentTensors inputs;
  LentTensors parameters;
  LentTensors buffers;
  for (const c10::IValue& value : values) {
    FSDP2_CHECK(value.isTensor() || value.isNone(), Code::kInvalidArgument,
                "{}: expected tensors as inputs, found a {}", what, value.tagKind());
    inputs.lend(value.isTensor() ? value.toTensor() : at::Tensor());
  }
  for (const auto& parameter : module.own_parameters()) {
    parameters.lend(view_of(parameter.value()));
  }
  for (const at::Tensor& buffer : module.own_buffers()) {
    buffers.lend(buffer);
  }
  const fsdp2_forward_info info{sizeof(fsdp2_forward_info),  module.is_training() ? 1 : 0,
                                module.kind().c_str(),       parameters.handles().data(),
                                parameters.handles().size(), buffers.handles().data(),
                                buffers.handles().size()};
  fsdp2_tensor outputs[FSDP2_MAX_OUTPUTS] = {};
  size_t n_outputs = 0;
  call_back(
      what,
      [&] {
        return function.fn(&info, inputs.handles().data(), inputs.handles().size(), outputs,
                           FSDP2_MAX_OUTPUTS, &n_outputs, function.held->data());
      },
      Nested::kForwards);
  const std::vector<at::Tensor> made = in_context(
      what, [&] { return take_outputs(outputs, n_outputs, {&inputs, &parameters, &buffers}); },
      Code::kCallback);
  if (made.size() == 1) {
    return made.front();
  }
  return c10::ivalue::Tuple::create(std::vector<c10::IValue>(made.begin(), made.end()));
}

uint64_t create_custom(const char* kind, const fsdp2_module_options* options, fsdp2_forward_fn fn,
                       void* user_data, fsdp2_release_fn release) {
  const std::string name = read_text(kind, kMaxName, "kind");
  check_not_null(fn, "fn");
  const auto function = std::make_shared<ForwardFunction>();
  function->what = "forward of " + name;
  function->fn = fn;
  function->held = std::make_shared<UserData>(user_data);
  const uint64_t id = give_custom(options, [&](const nn::LayerSettings& settings) {
    return std::make_shared<nn::CustomModule>(
        name,
        nn::CustomModuleOptions{settings.seed, settings.title_of_parameter, {}, /*is_stock=*/false},
        [function](const nn::CustomModule& self, const nn::Values& inputs) {
          return run_forward(*function, self, inputs);
        });
  });
  function->held->release_by(release);
  return id;
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_module_create_custom(const char* kind, const fsdp2_module_options* options,
                                        fsdp2_forward_fn fn, void* user_data,
                                        fsdp2_release_fn release, fsdp2_module* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    out->id = capi::create_custom(kind, options, fn, user_data, release);
  });
}
