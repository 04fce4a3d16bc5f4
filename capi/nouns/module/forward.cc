// The forwards of modules.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/nouns/module/module.h"
#include "capi/nouns/module/module_path.h"
#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "core/nn/value_map.h"
#include "include/fsdp2/module.h"

namespace fsdp2::capi {

namespace {

std::vector<at::Tensor> flatten(const c10::IValue& output) {
  std::vector<at::Tensor> tensors;
  nn::map_tensors(output, [&](const at::Tensor& tensor) {
    tensors.push_back(tensor);
    return tensor;
  });
  return tensors;
}

void check_inputs(Call& call, const ModuleObject& object, const fsdp2_tensor* inputs,
                  size_t n_inputs) {
  enter(call, object);
  check_usable(object);
  object.module->check_inputs(
      nn::values_of(read_inputs(*object.module, inputs, n_inputs, "inputs")));
}

// REQUIRES: the object, which the module is or is in, has been entered.
void forward(Call& call, const std::shared_ptr<ModuleObject>& object,
             const std::shared_ptr<nn::Module>& module, const fsdp2_tensor* inputs, size_t n_inputs,
             uint32_t flags, fsdp2_tensor* outputs, size_t cap, size_t* needed) {
  check_room("outputs", outputs, cap, 1, check_not_null(needed, "needed"));
  check_usable(*object);
  FSDP2_CHECK((flags & ~uint32_t{FSDP2_FORWARD_NO_GRAD}) == 0, Code::kInvalidArgument,
              "flags: expected 0 or FSDP2_FORWARD_NO_GRAD (1), found {}", flags);
  nn::Values values = nn::values_of(read_inputs(*module, inputs, n_inputs, "inputs"));
  const Producers producers =
      producers_of(inputs, n_inputs, {{object, /*was_sharded=*/object->mesh != nullptr}});
  materialize(*object);
  if (object->mesh && module == object->module) {
    fsdp::find_unit(*module)->check_forward({values});
  }
  const at::AutoGradMode grad_mode(call.may_record_gradients() &&
                                   (flags & FSDP2_FORWARD_NO_GRAD) == 0);
  call.share_failure();
  const std::vector<at::Tensor> made = flatten((*module)(std::move(values)));
  call.stop_sharing();
  check_room("outputs", outputs, cap, made.size(), needed);
  GivenTensors given;
  for (const at::Tensor& tensor : made) {
    given.give(tensor, producers);
  }
  const std::vector<fsdp2_tensor> handles = given.keep();
  std::copy(handles.begin(), handles.end(), outputs);
  *needed = handles.size();
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_module_forward(fsdp2_module module, const fsdp2_tensor* inputs, size_t n_inputs,
                                  uint32_t flags, fsdp2_tensor* outputs, size_t cap,
                                  size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    const auto whole = capi::whole_of(object);
    capi::enter_forward(call, *whole);
    capi::forward(call, whole, object->module, inputs, n_inputs, flags, outputs, cap, needed);
  });
}

fsdp2_status fsdp2_module_check_inputs(fsdp2_module module, const fsdp2_tensor* inputs,
                                       size_t n_inputs) {
  return guard(__func__,
               [&](Call& call) { capi::check_inputs(call, *pin(module), inputs, n_inputs); });
}

fsdp2_status fsdp2_module_forward_submodule(fsdp2_module module, const char* path,
                                            const fsdp2_tensor* inputs, size_t n_inputs,
                                            uint32_t flags, fsdp2_tensor* outputs, size_t cap,
                                            size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    const std::string name = capi::read_text(path, capi::kMaxName, "path");
    capi::enter_forward(call, *object);
    const auto inside = capi::find_module(object->module, name, "path");
    capi::forward(call, object, inside, inputs, n_inputs, flags, outputs, cap, needed);
  });
}
